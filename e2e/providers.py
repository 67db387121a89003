"""What the nodes of demo and benchmarks are: processes of this machine, real kubelets, or kind's (`PROVIDER`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.run import Run
from e2e.harness.cluster_rig import ClusterRig
from e2e.harness.rig import Rig, RigLayout
from e2e.kubelets.__main__ import on_real_nodes
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.kind import __main__ as kind
from e2e.kubelets.rig import RealRig, chips_of

PROVIDERS: Final = ("processes", "kubelets", "kind")


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option that chooses."""
    parser.add_argument("--provider", choices=PROVIDERS, default="processes", help="what the nodes are")


def elsewhere(
    options: argparse.Namespace, module: str, arguments: Sequence[str], trainer_environment: Mapping[str, str]
) -> int | None:
    """The exit code of a program that wants real nodes and was run again where they are; None: it is where they are."""
    if options.provider == "processes" or are_real():
        return None
    if options.provider == "kind":
        return kind.prepare(trainer_environment)
    return on_real_nodes(module, arguments, trainer_environment)


def are_real() -> bool:
    """Whether the nodes have real kubelets (`PROVIDER=kubelets` or `kind`)."""
    return DIRECTORY in os.environ


def name() -> str:
    """The provider in use."""
    if not are_real():
        return "processes"
    return "kind" if kind.is_chosen() else "kubelets"


def start(run: Run, layout: RigLayout, say: Callable[[ControlPlane], None] = lambda _: None) -> ClusterRig:
    """A control plane and the nodes of a layout, with Hajob as an admin installs it; `say` hears of the former."""
    if kind.is_chosen():
        plane, nodes = kind.start(run, chips_of(layout))
        say(plane)
        return RealRig.install(plane, nodes)
    plane = ControlPlane.start(run)
    say(plane)
    if are_real():
        return RealRig.start(plane, layout, Path(os.environ[DIRECTORY]))
    return Rig.start_demo(plane, layout)
