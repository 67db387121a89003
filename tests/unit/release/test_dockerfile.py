"""The Dockerfile packs the files that the archive has, and says the same of them."""

import json
import re
import shlex

import pytest

from e2e.bootstrap.paths import CHECKOUT
from release import layout

TEXT = (CHECKOUT / "Dockerfile").read_text().replace("\\\n", " ")
STAGES = [stage.splitlines() for stage in re.split(r"(?m)^FROM ", TEXT)[1:]]


def told(instruction: str) -> list[str]:
    return [line.removeprefix(f"{instruction} ") for line in STAGES[-1] if line.startswith(f"{instruction} ")]


def pairs(instruction: str) -> dict[str, str]:
    (text,) = told(instruction)
    return dict(word.split("=", 1) for word in shlex.split(text))


def test_the_files_are_written_by_the_same_program() -> None:
    (run,) = [line for line in STAGES[0] if "release.image" in line]
    assert "-m release.image --platform linux/${TARGETARCH} --root /image" in run
    assert run.count("/image") == 1, "nothing else writes there"
    assert STAGES[-1][0] == "scratch"
    assert told("COPY") == ["--from=files /image /"]
    assert told("RUN") == []


@pytest.mark.parametrize(("instruction", "key"), [("USER", "User"), ("WORKDIR", "WorkingDir")])
def test_user_and_directory_are_the_same(instruction: str, key: str) -> None:
    assert told(instruction) == [layout.CONFIG[key]]


def test_environment_labels_and_entry_are_the_same() -> None:
    assert pairs("ENV") == layout.ENVIRONMENT
    assert pairs("LABEL") == layout.LABELS
    assert [json.loads(text) for text in told("ENTRYPOINT")] == [layout.CONFIG["Entrypoint"]]


def test_the_image_has_a_numeric_user_that_is_not_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", layout.USER)
