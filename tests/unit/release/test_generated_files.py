"""CRDs and pages are written from the code, and `--check` says when one is stale."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hajob.plan import evaluator
from release.generate import crds, diagram, pictures, reference, remedies
from release.generate.crd_schema import SHORT_NAMES


def test_the_file_is_current(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert crds.main(["--check"]) == 0
    assert crds.main(["--check", "--directory", str(tmp_path)]) == 1
    assert "python -m release.generate.crds" in capsys.readouterr().err
    assert crds.main(["--directory", str(tmp_path)]) == 0
    written = yaml.safe_load((tmp_path / "crds" / crds.CRD_FILE).read_text(encoding="utf-8"))
    assert written["metadata"]["name"] == "hatrainingjobs.training.hajob.io"
    assert written["spec"]["names"]["shortNames"] == list(SHORT_NAMES)


def test_the_reference_page_is_current() -> None:
    assert reference.main(["--check"]) == 0


def test_the_pictures_of_commands_are_current() -> None:
    assert pictures.main(["--check"]) == 0


def test_the_pages_of_remedies_are_current() -> None:
    assert remedies.main(["--check"]) == 0


def test_the_pages_are_current() -> None:
    directory = Path(__file__).parents[3]
    for name, make in diagram.PAGES.items():
        assert (directory / name).read_text(encoding="utf-8") == make(), (
            f"run python -m release.generate.diagram for {name}"
        )


def test_the_check_fails_when_a_page_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert diagram.main(["--directory", str(tmp_path), "--check"]) == 1
    assert diagram.main(["--directory", str(tmp_path)]) == 0
    assert diagram.main(["--directory", str(tmp_path), "--check"]) == 0
    page = tmp_path / "docs/internals/state-machine.md"
    page.write_text(page.read_text(encoding="utf-8") + "x", encoding="utf-8")
    assert diagram.main(["--directory", str(tmp_path), "--check"]) == 1
    assert "state-machine.md" in capsys.readouterr().err


def test_every_refusal_has_its_line() -> None:
    text = diagram.preconditions()
    source = Path(evaluator.__file__).parent
    for module in ("evaluator.py", "recoverability.py", "simulate.py"):
        for line in (source / module).read_text(encoding="utf-8").split("Refusal(")[1:]:
            name = line.strip().split('"')[1] if line.strip().startswith('"') else ""
            assert not name or f"| {name} |" in text, name
