"""What the commands share: how one is declared, with a sentence and an example, and the options that many take.

`docs/user/cli.md` is made from the declarations, and a test runs the examples that need no cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, TypeAlias

from hajob.api import constants as names
from hajob.cli.language import Help
from hajob.cli.verbs import VERBS

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
EXAMPLE: Final = "Example:\n  "


def add_command(commands: Commands, name: str, sentence: str, example: str) -> argparse.ArgumentParser:
    """Add a command whose help is a sentence and an example."""
    return commands.add_parser(
        name,
        help=sentence,
        description=f"{sentence[0].upper()}{sentence[1:]}.",
        epilog=EXAMPLE + example,
        formatter_class=Help,
    )


def add_verb(commands: Commands, name: str) -> argparse.ArgumentParser:
    """Add a command of `VERBS`."""
    return add_command(commands, name, VERBS[name].sentence, VERBS[name].example)


def add_context_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses the cluster."""
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: the current one)")


def add_namespace(parser: argparse.ArgumentParser) -> None:
    """Add the option with the namespace of a job."""
    parser.add_argument(
        "-n", "--namespace", default="", metavar="NAMESPACE", help="namespace of the job (default: that of the context)"
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the name of a job, and its namespace."""
    parser.add_argument("job", metavar="JOB", help="name of the HATrainingJob")
    add_namespace(parser)


def add_chip_resource(parser: argparse.ArgumentParser) -> None:
    """Add the option with the name by which nodes offer their chips."""
    parser.add_argument(
        "--resource",
        default=names.DEFAULT_RESOURCE_NAME,
        metavar="NAME",
        help="name of the chips (default: %(default)s)",
    )


def add_operator_namespace(parser: argparse.ArgumentParser) -> None:
    """Add the option with the namespace of the operator."""
    parser.add_argument(
        "--operator-namespace",
        default="hajob-system",
        metavar="NAMESPACE",
        help="namespace of the operator (default: %(default)s)",
    )


def add_fault_namespaces(parser: argparse.ArgumentParser) -> None:
    """Add the option with the namespaces of MindCluster's ConfigMaps."""
    parser.add_argument(
        "--fault-namespaces",
        default=names.FAULT_NAMESPACES,
        metavar="NAMESPACES",
        help="namespaces of MindCluster's ConfigMaps, separated by commas (default: %(default)s)",
    )


def add_output_option(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("text", "json"), default: str = "text"
) -> None:
    """Add the option that chooses the format: for people or for programs."""
    told = "format of the answer" if default == argparse.SUPPRESS else "format of the answer (default: %(default)s)"
    parser.add_argument("-o", "--output", choices=formats, default=default, help=told)
