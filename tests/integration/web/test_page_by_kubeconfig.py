"""`kubectl hajob ui` as a process, by every form of kubeconfig: it shows the jobs, or says in a sentence why not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.fixtures import PROXIES
from tests.rigs.connect_proxy import open_proxy
from tests.rigs.jobs_on_server import path_of_jobs

Json = dict[str, Any]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\?key=\S+")
ELSEWHERE = "https://api.example.org:6443"
"""A server that only a proxy reaches; its certificate names another host."""
NAMED = {"server": ELSEWHERE, "tls-server-name": "kubernetes.default.svc"}
SEEN_SECONDS = 60.0
PLUGIN = """
import json, pathlib, sys
with open(sys.argv[1] + ".calls", "a") as calls:
    calls.write("x")
status = {"token": pathlib.Path(sys.argv[1]).read_text()}
if not status["token"]:
    sys.exit("the login has run out: corp login")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


class Place:
    """A namespace with a job, and kubeconfigs that lead there."""

    def __init__(self, plane: ControlPlane, namespace: str, job: str, directory: Path) -> None:
        self.plane, self.namespace, self.job, self.directory = plane, namespace, job, directory
        self.known = yaml.safe_load(plane.kubeconfig.read_text())
        self.known["contexts"][0]["context"]["namespace"] = namespace

    def write_kubeconfig(
        self, cluster: Mapping[str, object] | None = None, user: Mapping[str, object] | None = None
    ) -> Path:
        """A kubeconfig with these fields of the cluster in place of its own, and this user."""
        self.known["clusters"][0]["cluster"] |= cluster or {}
        if user is not None:
            self.known["users"][0]["user"] = dict(user)
        path = self.directory / "kubeconfig"
        path.write_text(yaml.safe_dump(self.known))
        return path

    def token_of_viewer(self) -> str:
        """A token of an account that may view this namespace."""
        self.plane.kubectl("create", "serviceaccount", "viewer", "-n", self.namespace)
        self.plane.kubectl("create", "role", "viewer", "-n", self.namespace, "--verb=get,list,watch",
                           "--resource=hatrainingjobs.training.hajob.io,pods")  # fmt: skip
        who = f"--serviceaccount={self.namespace}:viewer"
        self.plane.kubectl("create", "rolebinding", "viewer", "-n", self.namespace, "--role=viewer", who)
        return self.plane.kubectl("create", "token", "viewer", "-n", self.namespace).stdout.strip()

    def write_plugin(self, token: str) -> dict[str, Json]:
        """A user whose token a program prints; empty: which says that it has none."""
        plugin, answer = self.directory / "plugin.py", self.directory / "answer"
        plugin.write_text(PLUGIN)
        answer.write_text(token)
        named = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
        return {"exec": {**named, "command": sys.executable, "args": [str(plugin), str(answer)]}}


@pytest.fixture
def place(control_plane: ControlPlane, crd: Json, job: Json, where: str, tmp_path: Path) -> Place:
    assert crd
    control_plane.api.create(path_of_jobs(where), job)
    return Place(control_plane, where, job["metadata"]["name"], tmp_path)


@asynccontextmanager
async def typed(kubeconfig: Path | str, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, until the context ends."""
    known = {name: value for name, value in os.environ.items() if name.lower() not in PROXIES}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hajob.cli.main", "ui", "--no-browser"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**known, "KUBECONFIG": str(kubeconfig), **environment},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()


async def shown_jobs(process: asyncio.subprocess.Process) -> list[Json]:
    """The first list of jobs that the page tells whoever opens its address."""
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), SEEN_SECONDS)).decode()
    assert ADDRESS.match(line), line + (await process.communicate())[1].decode()
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(line.strip()) as page:
            assert page.status == 200
        async with browser.get(f"{line.partition('/?')[0]}/api/jobs") as stream:
            async for said in stream.content:
                if said.startswith(b"data:"):
                    told: Json = json.loads(said.removeprefix(b"data:"))
                    return list(told["jobs"])
    raise AssertionError("the stream has ended")


async def refusal_of(kubeconfig: Path | str, **environment: str) -> str:
    """What the command says, one sentence, when it ends by itself."""
    async with typed(kubeconfig, **environment) as process:
        said, wrong = await asyncio.wait_for(process.communicate(), SEEN_SECONDS)
        assert (process.returncode, said) == (1, b""), wrong
        (sentence,) = wrong.decode().splitlines()
        return sentence


async def test_a_proxy_and_another_name_of_the_server(place: Place, control_plane: ControlPlane) -> None:
    async with (
        open_proxy(control_plane.server) as proxy,
        typed(place.write_kubeconfig({**NAMED, "proxy-url": proxy.url})) as process,
    ):
        assert place.job in [one["name"] for one in await shown_jobs(process)]
        assert set(proxy.asked) == {"api.example.org:6443"}


async def test_a_proxy_of_the_environment(place: Place, control_plane: ControlPlane) -> None:
    async with open_proxy(control_plane.server) as proxy:
        async with typed(place.write_kubeconfig(NAMED), HTTPS_PROXY=proxy.url) as process:
            assert place.job in [one["name"] for one in await shown_jobs(process)]
        assert proxy.asked
        before = len(proxy.asked)
        direct = place.write_kubeconfig({"server": control_plane.server})
        async with typed(direct, HTTPS_PROXY=proxy.url, NO_PROXY=proxy.host) as process:
            assert place.job in [one["name"] for one in await shown_jobs(process)]
        assert len(proxy.asked) == before, "it is left out by NO_PROXY"


async def test_a_program_that_prints_the_token(place: Place) -> None:
    plugin = place.write_plugin(place.token_of_viewer())
    async with typed(place.write_kubeconfig(user=plugin)) as process:
        (one,) = await shown_jobs(process)
        assert (one["namespace"], one["name"]) == (place.namespace, place.job), "what it may read, and no more"
        assert (place.directory / "answer.calls").read_text() == "x", "it may ask for a password: once"


async def test_who_acts_as_somebody_else_sees_what_they_see(place: Place) -> None:
    place.token_of_viewer()
    place.known["users"][0]["user"] |= {"as": f"system:serviceaccount:{place.namespace}:viewer"}
    async with typed(place.write_kubeconfig()) as process:
        (one,) = await shown_jobs(process)
        assert (one["namespace"], one["name"]) == (place.namespace, place.job), "and no more, as an admin would"
    words = (sys.executable, "-m", "hajob.cli.main", "list", "-A")
    listed = await asyncio.create_subprocess_exec(
        *words, stderr=asyncio.subprocess.PIPE, env={**os.environ, "KUBECONFIG": str(place.write_kubeconfig())}
    )
    refusal = (await listed.communicate())[1].decode()
    assert (listed.returncode, f'"system:serviceaccount:{place.namespace}:viewer" cannot list' in refusal) == (1, True)
    place.known["users"][0]["user"] = {"as-groups": ["system:masters"]}
    assert (await refusal_of(place.write_kubeconfig())).endswith("names nobody in as")


async def test_a_program_that_has_no_token_is_told(place: Place) -> None:
    said = await refusal_of(place.write_kubeconfig(user=place.write_plugin("")))
    assert said.startswith("error: no kubeconfig can be used: exec: process returned 1")
    assert said.endswith("the login has run out: corp login")


async def test_a_program_that_is_missing_is_told(place: Place) -> None:
    plugin = place.write_plugin("token")
    plugin["exec"]["command"] = "corp-login"
    said = await refusal_of(place.write_kubeconfig(user=plugin))
    assert said.startswith("error: no kubeconfig can be used: ")
    assert "corp-login" in said


async def test_a_proxy_that_cannot_be_used_is_told(place: Place) -> None:
    proxy = "socks5://me:secret@127.0.0.1:9"
    for written in (proxy, "ftp://me:secret@127.0.0.1:9"):
        said = await refusal_of(place.write_kubeconfig({"proxy-url": written}))
        assert said.endswith("only http and https are supported in its proxy-url")
    place.known["clusters"][0]["cluster"].pop("proxy-url")
    refused = "error: the proxy of the environment cannot be used: only http and https are supported"
    assert await refusal_of(place.write_kubeconfig(), HTTPS_PROXY=proxy) == refused
