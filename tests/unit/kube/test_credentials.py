"""Tokens that change while the operator runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hajob.kube.credentials import from_kubeconfig

PLUGIN = """
import json, pathlib, sys
calls = pathlib.Path(sys.argv[1])
number = int(calls.read_text()) + 1
calls.write_text(str(number))
if number == 3:
    sys.exit("no network")
status = {"token": f"token-{number}"}
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


async def test_a_plugin_is_asked_again_after_a_refusal(tmp_path: Path) -> None:
    calls, plugin, config = tmp_path / "calls", tmp_path / "plugin.py", tmp_path / "config"
    calls.write_text("0")
    plugin.write_text(PLUGIN)
    command: dict[str, object] = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    command |= {"args": [str(plugin), str(calls)], "interactiveMode": "Never"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "me", "user": {"exec": command}}],
    }
    config.write_text(json.dumps(content))
    credentials = await from_kubeconfig(str(config))
    await credentials.refresh_kubeconfig()
    assert (credentials.bearer_token, calls.read_text()) == ("token-1", "1")
    credentials.reload_token()  # as after a 401
    await credentials.refresh_kubeconfig()
    await credentials.refresh_kubeconfig()
    assert (credentials.bearer_token, calls.read_text()) == ("token-2", "2")
    credentials.reload_token()
    await credentials.refresh_kubeconfig()  # the plugin fails: the token before may still be good
    assert credentials.bearer_token == "token-2"
