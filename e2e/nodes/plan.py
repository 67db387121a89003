"""What exactly is started for a container: arguments, environment, working directory.

Pure, so that every rule of it has a test: which of command, args, entry point and cmd wins, what the environment is
made of and in which order, and where mount paths are put in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from e2e.nodes.config import JsonObject, local_address_of
from e2e.nodes.environment import PodFacts, References, container_variables
from e2e.nodes.expansion import expand, expand_all, mount_replacer
from e2e.nodes.images import Image

LOCAL_ADDRESS = "HAJOB_LOCAL_ADDRESS"
"""Where only the containers of the same pod are expected: of a pod with a network of its own 127.0.0.1."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Surroundings:
    """What a container finds besides its own spec and image.

    ``volumes`` maps volume names to real places, ``services`` are variables every container of the cluster gets,
    ``devices`` those the device plugin adds, ``home`` is a directory of the pod's own for HOME, TMPDIR and as working
    directory, ``termination_log`` the file the container may leave its last words in, ``markers`` are the node's own,
    by which it finds its processes again.
    """

    facts: PodFacts
    found: References
    volumes: Mapping[str, Path]
    home: Path
    termination_log: Path
    services: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)
    markers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ContainerPlan:
    """A process to start."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    working_directory: str


def plan_container(container: JsonObject, image: Image, around: Surroundings) -> ContainerPlan:
    """Plan the first process of ``container``.

    Raises:
        ReferenceMissingError: a ConfigMap or Secret of its environment is not there.
    """
    given = {**around.services, **around.devices, LOCAL_ADDRESS: local_address_of(around.facts.pod_address)}
    variables = container_variables(container, around.facts, around.found, given)
    replace = mount_replacer(mounts(container, around, variables))
    environment = {**_defaults(around), **image.env, **variables}
    arguments = [replace(word) for word in command_line(container, image, variables)]
    working = container.get("workingDir") or image.working_directory or str(around.home)
    return ContainerPlan(
        arguments=tuple(arguments),
        environment={**{name: replace(value) for name, value in environment.items()}, **around.markers},
        working_directory=replace(working),
    )


def inside(plan: ContainerPlan, container: JsonObject, around: Surroundings, command: Sequence[str]) -> ContainerPlan:
    """Plan a further process of a running container (a probe, a hook): no expansion, but the same mounts."""
    replace = mount_replacer(mounts(container, around, plan.environment))
    return ContainerPlan(tuple(replace(word) for word in command), plan.environment, plan.working_directory)


def command_line(container: JsonObject, image: Image, variables: Mapping[str, str]) -> list[str]:
    """Kubernetes' rule: ``command`` replaces entry point and cmd, ``args`` replaces cmd."""
    command: Sequence[str] = container.get("command") or []
    arguments: Sequence[str] = container.get("args") or []
    first = expand_all(command, variables) if command else list(image.entrypoint)
    if arguments:
        return [*first, *expand_all(arguments, variables)]
    return first if command else [*first, *image.cmd]


def mounts(container: JsonObject, around: Surroundings, variables: Mapping[str, str]) -> dict[str, str]:
    """Mount path → real place, sub-paths and the file for the termination message included."""
    message = container.get("terminationMessagePath") or "/dev/termination-log"
    places = {message: str(around.termination_log)}
    for mount in container.get("volumeMounts") or []:
        below = _sub_path(mount, variables)
        place = around.volumes[mount["name"]]
        places[mount["mountPath"]] = str(place / below if below else place)
    return places


def _sub_path(mount: JsonObject, variables: Mapping[str, str]) -> str:
    return mount.get("subPath") or expand(mount.get("subPathExpr") or "", variables)


def make_sub_paths(container: JsonObject, volumes: Mapping[str, Path], variables: Mapping[str, str]) -> None:
    """Make the directories of sub-paths that are not there yet, as a kubelet does."""
    for mount in container.get("volumeMounts") or []:
        below = _sub_path(mount, variables)
        if below:
            place = volumes[mount["name"]] / below
            if not place.exists():
                place.mkdir(parents=True)


def _defaults(around: Surroundings) -> dict[str, str]:
    """What a container runtime gives every process; the home is the pod's own, so nothing is left in /tmp."""
    home = str(around.home)
    name = around.facts.pod["spec"].get("hostname") or around.facts.pod["metadata"]["name"]
    return {"PATH": DEFAULT_PATH, "HOSTNAME": name, "HOME": home, "TMPDIR": home}
