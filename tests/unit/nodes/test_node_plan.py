"""What is started for a container."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.nodes.config import local_address_of
from e2e.nodes.environment import PodFacts, References
from e2e.nodes.images import Image, ImageMissingError, read_image
from e2e.nodes.plan import Surroundings, command_line, inside, make_sub_paths, plan_container

IMAGE = Image(Path("/images/x"), {"PATH": "/venv/bin", "PYTHONPATH": "/repo"}, ("python3",), ("-V",), "/images/x")
FACTS = PodFacts({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": []}}, "ip", "host")


def around(**volumes: str) -> Surroundings:
    return Surroundings(
        facts=FACTS,
        found=References(),
        volumes={name: Path(place) for name, place in volumes.items()},
        home=Path("/run/1/.home/c"),
        termination_log=Path("/run/1/.messages/c"),
        services={"KUBERNETES_SERVICE_HOST": "h"},
        devices={"ASCEND_VISIBLE_DEVICES": "0,1"},
        markers={"HAJOB_RUN": "r"},
    )


@pytest.mark.parametrize(
    ("container", "line"),
    [
        ({}, ["python3", "-V"]),
        ({"args": ["a"]}, ["python3", "a"]),
        ({"command": ["sh"]}, ["sh"]),
        ({"command": ["sh"], "args": ["-c", "$(X)"]}, ["sh", "-c", "1"]),
    ],
)
def test_command_and_args_replace_entry_point_and_cmd(container: dict[str, Any], line: list[str]) -> None:
    assert command_line(container, IMAGE, {"X": "1"}) == line


def test_the_environment_is_image_then_container_never_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAK", "1")
    container = {"name": "c", "env": [{"name": "PYTHONPATH", "value": "mine"}, {"name": "HOME", "value": "/root"}]}
    environment = plan_container(container, IMAGE, around()).environment
    assert environment == {
        "PATH": "/venv/bin",
        "PYTHONPATH": "mine",
        "HOSTNAME": "p",
        "HOME": "/root",
        "TMPDIR": "/run/1/.home/c",
        "KUBERNETES_SERVICE_HOST": "h",
        "ASCEND_VISIBLE_DEVICES": "0,1",
        "HAJOB_RUN": "r",
        "HAJOB_LOCAL_ADDRESS": "ip",
    }


def test_a_pod_has_a_loopback_of_its_own() -> None:
    assert local_address_of("127.16.3.2") == "127.16.3.129"
    assert local_address_of("127.16.3.127") == "127.16.3.254"


def test_the_container_can_overrule_its_devices() -> None:
    container = {"name": "c", "env": [{"name": "ASCEND_VISIBLE_DEVICES", "value": "7"}]}
    assert plan_container(container, IMAGE, around()).environment["ASCEND_VISIBLE_DEVICES"] == "7"


def test_mounts_are_put_in_after_variables_are_expanded() -> None:
    container = {
        "name": "c",
        "command": ["$(DIR)/bin/torchrun", "--save=/ckpt"],
        "workingDir": "/ckpt/work",
        "env": [{"name": "DIR", "value": "/hajob"}, {"name": "LIBS", "value": "/lib:/hajob/lib"}],
        "volumeMounts": [
            {"name": "h", "mountPath": "/hajob"},
            {"name": "d", "mountPath": "/ckpt", "subPath": "job"},
        ],
    }
    plan = plan_container(container, IMAGE, around(h="/run/1/h", d="/data"))
    assert plan.arguments == ("/run/1/h/bin/torchrun", "--save=/data/job")
    assert plan.working_directory == "/data/job/work"
    assert (plan.environment["DIR"], plan.environment["LIBS"]) == ("/run/1/h", "/lib:/run/1/h/lib")


def test_a_probe_runs_with_the_containers_mounts_and_variables() -> None:
    container = {"name": "c", "volumeMounts": [{"name": "h", "mountPath": "/hajob"}]}
    plan = plan_container(container, IMAGE, around(h="/run/1/h"))
    probe = inside(plan, container, around(h="/run/1/h"), ["test", "-e", "/hajob/ready", "$(PATH)"])
    assert probe.arguments == ("test", "-e", "/run/1/h/ready", "$(PATH)")
    assert probe.environment == plan.environment


def test_the_termination_message_goes_into_a_file_of_the_pod() -> None:
    container = {"name": "c", "command": ["sh", "-c", "echo bye > /dev/termination-log"]}
    assert plan_container(container, IMAGE, around()).arguments[2] == "echo bye > /run/1/.messages/c"


def test_the_working_directory_is_the_image_s_else_the_pod_s_own() -> None:
    assert plan_container({"name": "c"}, IMAGE, around()).working_directory == "/images/x"
    assert plan_container({"name": "c"}, Image(Path()), around()).working_directory == "/run/1/.home/c"


def test_sub_paths_are_made_but_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    mounts = [
        {"name": "v", "mountPath": "/a", "subPath": "deep/er"},
        {"name": "v", "mountPath": "/b", "subPath": "file"},
    ]
    make_sub_paths({"volumeMounts": mounts}, {"v": tmp_path}, {})
    assert (tmp_path / "deep/er").is_dir()
    assert (tmp_path / "file").read_text() == "x"


def test_an_image_is_read_from_its_directory(tmp_path: Path) -> None:
    content = {"env": {"A": 1}, "entrypoint": ["e"], "cmd": ["c"], "workingDir": "."}
    (tmp_path / "image.json").write_text(json.dumps(content))
    image = read_image("x:1", {"x:1": tmp_path})
    assert (image.env, image.entrypoint, image.cmd) == ({"A": "1"}, ("e",), ("c",))
    assert Path(image.working_directory) == tmp_path


def test_an_unknown_image_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ImageMissingError, match=r'"y:1": not among this node set.s images \(x:1\)'):
        read_image("y:1", {"x:1": tmp_path})
    with pytest.raises(ImageMissingError, match=r"image\.json"):
        read_image("x:1", {"x:1": tmp_path})
    (tmp_path / "image.json").write_text('{"entryPoint": []}')
    with pytest.raises(ImageMissingError, match="unknown fields entryPoint"):
        read_image("x:1", {"x:1": tmp_path})
