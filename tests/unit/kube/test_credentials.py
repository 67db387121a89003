"""Tokens that change while the operator runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hajob.kube.credentials import CredentialsError, from_kubeconfig, load_credentials

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


def write_cluster(directory: Path, **cluster: str) -> str:
    """A kubeconfig whose cluster has these fields."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": "https://api.example.org", **cluster}}],
        "users": [{"name": "me", "user": {"token": "token-1"}}],
    }
    path = directory / "config"
    path.write_text(json.dumps(content))
    return str(path)


async def test_the_way_to_the_server_is_that_of_the_kubeconfig(tmp_path: Path) -> None:
    way = {"proxy-url": "http://me:secret@proxy.example.org:3128", "tls-server-name": "kubernetes"}
    credentials = await from_kubeconfig(write_cluster(tmp_path, **way))
    assert (credentials.proxy, credentials.server_name) == (way["proxy-url"], "kubernetes")
    credentials = await from_kubeconfig(write_cluster(tmp_path))
    assert (credentials.proxy, credentials.server_name, credentials.bearer_token) == ("", "", "token-1")


async def test_a_proxy_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_cluster(tmp_path, **{"proxy-url": "socks5://me:secret@proxy.example.org"})
    with pytest.raises(CredentialsError, match="only http and https are supported in its proxy-url") as refused:
        await load_credentials(path, "")
    assert "secret" not in str(refused.value)
    assert "HAJOB_KUBECONFIG" in str(refused.value)


async def test_every_request_says_on_whose_behalf(tmp_path: Path) -> None:
    path = Path(write_cluster(tmp_path))
    content = json.loads(path.read_text())
    content["users"][0]["user"] = {"username": "me", "password": "secret", "as": "jane", "as-groups": ["a", "b"]}
    path.write_text(json.dumps(content))
    credentials = await from_kubeconfig(str(path))
    assert credentials.authorization_header() == {"Authorization": "Basic bWU6c2VjcmV0"}
    groups = (("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    assert credentials.impersonation == (("Impersonate-User", "jane"), *groups)
    with pytest.raises(CredentialsError, match="acts as somebody else"):
        await load_credentials(str(path), "")
