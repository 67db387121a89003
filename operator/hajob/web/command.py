"""`kubectl hajob ui`: serve the page on this machine until Ctrl-C, with the rights of whoever types."""

from __future__ import annotations

import argparse
import asyncio
import html
import os
import signal
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from aiohttp import web

from hajob.cli.cluster import ClusterError
from hajob.cli.exits import DONE, run_reported
from hajob.cli.library_client import files_of_kubeconfig
from hajob.cli.options import (
    Commands,
    add_chip_resource,
    add_context_option,
    add_fault_namespaces,
    add_operator_namespace,
    add_verb,
)
from hajob.clock import SystemClock
from hajob.kube.credentials import PROXY_SCHEMES, CredentialsError, from_kubeconfig
from hajob.kube.http import HttpKube
from hajob.web.live import LiveCluster, Scope
from hajob.web.local_door import ADDRESS, LocalDoor
from hajob.web.server import build_application


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_verb(commands, "ui")
    parser.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAMESPACE",
        help="jobs of this namespace only (default: all, or that of the context where you may not list all)",
    )
    parser.add_argument("--port", type=int, default=0, metavar="PORT", help="listen there (default: any free port)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    add_chip_resource(parser)
    add_fault_namespaces(parser)
    add_operator_namespace(parser)
    add_context_option(parser)
    parser.set_defaults(run=run_ui)


def run_ui(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    return run_reported(lambda: asyncio.run(_serve_page(arguments)))


async def _serve_page(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes.

    Raises:
        ClusterError: the kubeconfig cannot be used, or the port is taken.
    """
    try:
        # A program that prints the credentials runs once: it may ask for a password.
        credentials = await from_kubeconfig(files_of_kubeconfig(None), arguments.context)
    except CredentialsError as problem:
        raise ClusterError(str(problem)) from None
    credentials.proxy = credentials.proxy or _proxy_of_environment(credentials.server)
    scope = Scope(
        arguments.namespace,
        credentials.namespace,
        arguments.resource,
        arguments.operator_namespace,
        tuple(arguments.fault_namespaces.split(",")),
    )
    ended = asyncio.Event()
    loop_signals = (signal.SIGINT, signal.SIGTERM)
    clock = SystemClock()
    async with HttpKube(credentials, "kubectl-hajob") as kube, LiveCluster(kube, clock, scope) as cluster:
        door = LocalDoor(cluster)
        runner = web.AppRunner(
            build_application(door, clock), access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await _listen_on_port(runner, door, arguments.port)
            with _ending_on(loop_signals, ended), _opened_in_browser(door.address, wanted=not arguments.no_browser):
                where = f"jobs of namespace {cluster.scope.namespace}" if cluster.scope.namespace else "all jobs"
                print(f"{door.address}\n{where}; the address is a key: whoever has it sees what you may see")
                print("Ctrl-C ends it", flush=True)
                await ended.wait()
        finally:
            await runner.cleanup()
    return DONE


def _proxy_of_environment(server: str) -> str:
    """Return the proxy by which kubectl reaches a server, by the environment alone; empty: none.

    Raises:
        ClusterError: it is of a kind that nothing here can use.
    """
    url = urlsplit(server)
    found = "" if proxy_bypass(url.netloc) else getproxies().get(url.scheme, "")
    if found and urlsplit(found).scheme not in PROXY_SCHEMES:  # its URL may hold a password, and is not told
        raise ClusterError(
            f"the proxy of the environment cannot be used: only {' and '.join(PROXY_SCHEMES)} are supported"
        )
    return found


async def _listen_on_port(runner: web.AppRunner, door: LocalDoor, port: int) -> None:
    site = web.TCPSite(runner, ADDRESS, port)
    try:
        await site.start()
    except OSError as problem:
        raise ClusterError(
            f"port {port} cannot be used: {problem.strerror or problem}; --port chooses another"
        ) from None
    door.port = runner.addresses[0][1]


@contextmanager
def _ending_on(signals: tuple[signal.Signals, ...], ended: asyncio.Event) -> Iterator[None]:
    """Set the event when one of these signals comes."""
    before = {number: signal.getsignal(number) for number in signals}
    loop = asyncio.get_running_loop()  # noqa: TID251  signals only, no timer
    for number in signals:
        loop.add_signal_handler(number, ended.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@contextmanager
def _opened_in_browser(address: str, *, wanted: bool) -> Iterator[None]:
    """Open a browser, where there is one.

    The address holds the key, and arguments of a program can be read by every user of the machine. So the browser is
    given a file that only this user can read, and which leads on.
    """
    if not wanted or not _has_desktop():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="hajob-ui-") as directory:
        page = Path(directory) / "open.html"
        page.touch(mode=0o600)
        page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">\n')
        with suppress(webbrowser.Error):
            webbrowser.open(page.as_uri())
        yield


def _has_desktop() -> bool:
    """Return whether a browser that is opened would be seen: a text browser would take the terminal."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
