"""`make inject`: a fault of hardware in the demo that runs, or the end of all of them.

    make inject ARGS="chip node-3 1 --code 40F84E00 --level RestartNPU"

The words are those of `kubectl hajob inject`. Here the node itself breaks: its device plugin and NodeD go on telling it
until it recovers, and a severe fault takes the chip from the kubelet as well.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.run import described_runs
from e2e.nodes.control import ControlError, NodeControl
from hajob.cli import inject
from hajob.cli.injection import Injection, InjectionKind

SOCKET = "control.sock"


def control_sockets() -> list[Path]:
    """Control sockets of the node sets of this checkout's runs, the newest run first."""
    runs = [directory for directory, told in described_runs() if told.get("checkout") == str(CHECKOUT)]
    newest = sorted(runs, key=lambda directory: directory.stat().st_mtime, reverse=True)
    return [socket for directory in newest for socket in sorted(directory.rglob(SOCKET))]


def carry_out(injection: Injection, control: NodeControl) -> None:
    """Break or mend the node; raises `ControlError` where it refuses."""
    kind, node, chip = injection.kind, injection.node, injection.chip
    if kind is InjectionKind.SWITCH:
        control.set_switch_faults(node, [{"code": injection.code, "level": injection.level}])
    elif kind is InjectionKind.NODE:
        fault = {"device": "CPU", "deviceId": 0, "codes": [injection.code], "level": injection.level}
        control.set_node_faults(node, [fault])
    elif kind is InjectionKind.RECOVER:
        _recover(control, node, chip)
    else:
        assert chip is not None, "Injection.of asks for it"
        network = kind is InjectionKind.LINK_DOWN
        told = "CardNetworkUnhealthy" if network else "CardUnhealthy"
        control.break_chip(node, chip, injection.code, injection.level, told)


def _recover(control: NodeControl, node: str, chip: int | None) -> None:
    if chip is not None:
        control.repair_chip(node, chip)
        return
    count = next(one["chips"] for one in control.state()["nodes"] if one["name"] == node)
    for each in range(count):
        control.repair_chip(node, each)
    control.set_switch_faults(node, [])
    control.set_node_faults(node, [])


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry it out in the newest run that has such a node; 1 where there is none, 2 for input without sense."""
    parser = argparse.ArgumentParser(prog="make inject", description="Make a fault in the demo that runs.")
    inject.add_arguments(parser)
    try:
        injection = inject.read_injection(parser.parse_args(arguments))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    problem = "nothing runs: begin with make demo"
    for socket in control_sockets():
        try:
            carry_out(injection, NodeControl(socket))
        except (ControlError, OSError, StopIteration) as error:
            problem = str(error) or f"there is no node {injection.node}"
        else:
            print(f"{injection.node}: {injection.kind} {injection.code} {injection.level}".rstrip())
            return 0
    print(f"error: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
