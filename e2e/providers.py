"""What the nodes of demo and benchmarks are: processes of this machine, or real kubelets (`PROVIDER`)."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster.control_plane import ControlPlane
from e2e.harness.rig import Rig, RigLayout
from e2e.harness.stage import Stage
from e2e.kubelets.__main__ import on_real_nodes
from e2e.kubelets.configuration import DIRECTORY
from e2e.kubelets.rig import RealRig


def add_option(parser: argparse.ArgumentParser) -> None:
    """The option that chooses."""
    parser.add_argument("--provider", choices=("processes", "kubelets"), default="processes", help="what the nodes are")


def elsewhere(
    options: argparse.Namespace, module: str, arguments: Sequence[str], trainer_environment: Mapping[str, str]
) -> int | None:
    """The exit code of a program that wants real nodes and was run again where they are; None: it is there already."""
    if options.provider == "processes" or are_real():
        return None
    return on_real_nodes(module, arguments, trainer_environment)


def are_real() -> bool:
    """Whether the nodes are real kubelets (`PROVIDER=kubelets`)."""
    return DIRECTORY in os.environ


def start(plane: ControlPlane, layout: RigLayout) -> Stage:
    """The nodes of a layout, with Hajob as an admin installs it."""
    if are_real():
        return RealRig.start(plane, layout, Path(os.environ[DIRECTORY]))
    return Rig.start_demo(plane, layout)
