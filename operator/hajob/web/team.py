"""The page for a team, as a process: `python3 -m hajob.web.team`, which the chart starts with `ui.enabled`.

Without a certificate it listens on 127.0.0.1 only, where `kubectl port-forward` reaches it: a token must not cross a
network in the clear.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from hajob.api import constants as names
from hajob.clock import SystemClock
from hajob.web.live import Scope
from hajob.web.server import build_application
from hajob.web.team_door import RemoteCluster, TeamDoor
from hajob.web.team_tls import TeamCertificate

_HERE: Final = "127.0.0.1"
_EVERYWHERE: Final = None
"""Every address of the pod, of either version of IP."""
_SHUTDOWN_SECONDS: Final = 2.0


def main(arguments: list[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Serve until SIGTERM; 2 where it cannot begin."""
    parser = argparse.ArgumentParser(prog="hajob.web.team", description=__doc__)
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--authority", default="/var/run/hajob-ui/ca.crt", help="CA of the API server")
    parser.add_argument("--tls", default="", metavar="DIRECTORY", help="with tls.crt and tls.key; empty: no TLS")
    parser.add_argument("--namespace", default="", help="jobs of this namespace only (default: all)")
    parser.add_argument("--resource", default=names.DEFAULT_RESOURCE_NAME, help="name of the chips")
    parser.add_argument("--operator-namespace", default="hajob-system")
    parser.add_argument("--fault-namespaces", default=names.FAULT_NAMESPACES)
    options = parser.parse_args(arguments)
    environment = os.environ if environment is None else environment
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        print(
            "error: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run it in a pod", file=sys.stderr
        )
        return 2
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespaces = tuple(options.fault_namespaces.split(","))
    scope = Scope(options.namespace, "", options.resource, options.operator_namespace, namespaces)
    door = TeamDoor(RemoteCluster(server, options.authority), SystemClock(), scope)
    try:
        certificate = TeamCertificate(Path(options.tls)) if options.tls else None
    except OSError as problem:
        print(f"error: no certificate can be used in {options.tls}: {problem}", file=sys.stderr)
        return 2
    asyncio.run(_serve_until_signal(door, options.port, certificate))
    return 0


async def _serve_until_signal(door: TeamDoor, port: int, certificate: TeamCertificate | None) -> None:
    ended, clock = asyncio.Event(), SystemClock()
    loop = asyncio.get_running_loop()  # noqa: TID251  signals only, no timer
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    application = build_application(door, clock)
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_SECONDS)
    await runner.setup()
    host, tls = (_HERE, None) if certificate is None else (_EVERYWHERE, certificate.context)
    following = asyncio.create_task(certificate.follow_files(clock)) if certificate is not None else None
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        print(
            f"serving on port {port}, {'without TLS, for kubectl port-forward' if tls is None else 'with TLS'}",
            flush=True,
        )
        await ended.wait()
    finally:
        if following is not None:
            following.cancel()
        await runner.cleanup()
        await door.end_sessions()


if __name__ == "__main__":
    sys.exit(main())
