import importlib.metadata
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from e2e.bootstrap.environment import LOCK
from e2e.bootstrap.paths import CHECKOUT
from hajob.version import VERSION
from release import debian, layout, plugin, wheels
from release.platforms import PLATFORMS, Platform
from release.tree import Entry, to_tar

LOCKED = "a==1 \\\n    --hash=sha256:1\n    # via b\nb-c==2 \\\n    --hash=sha256:2\n"


def package(tree: dict[str, Entry]) -> bytes:
    """A .deb: an ar archive of three members, one of odd length."""
    members = [("debian-binary", b"2.0\n"), ("control.tar", b"odd"), ("data.tar", to_tar(tree))]
    content = b"!<arch>\n"
    for name, data in members:
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data
        content += b"\n" * (len(data) % 2)
    return content


def wheel(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def test_documents_stay_out_and_licences_stay_in() -> None:
    kept = {"usr/bin/python3.11": Entry(b"x", executable=True), "usr/share/doc/p/copyright": Entry(b"PSF")}
    dropped = {"usr/share/man/man1/p.1.gz": Entry(b""), "usr/share/doc/p/changelog.gz": Entry(b"")}
    assert debian.unpack(package(kept | dropped)) == kept


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=lambda platform: platform.debian)
def test_the_lock_names_every_package_once_for_each_platform(platform: Platform) -> None:
    assert sorted(each.name for each in debian.locked(platform)) == sorted(debian.PACKAGES)


def test_without_apt_it_says_which_files_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(debian.PackagesError, match=r"apt-get is not there: put .*libc6=.* into .*debian"):
        debian.fetch(PLATFORMS["linux/arm64"], tmp_path)


def test_a_file_that_is_not_the_locked_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "debian").mkdir()
    for each in debian.locked(PLATFORMS["linux/arm64"]):
        (tmp_path / "debian" / each.file).write_bytes(b"something else")
    with pytest.raises(debian.PackagesError, match=r"is not what debian\.lock names"):
        debian.fetch(PLATFORMS["linux/arm64"], tmp_path)


def test_only_what_is_asked_for_is_taken_of_the_lock() -> None:
    assert wheels.locked({"b-c"}, LOCKED) == "b-c==2 \\\n    --hash=sha256:2\n"
    with pytest.raises(ValueError, match=r"lacks d"):
        wheels.locked({"a", "d"}, LOCKED)


def test_of_two_versions_the_one_for_the_images_python_is_taken() -> None:
    old, new = (
        "a==1 ; python_full_version < '3.12' \\\n    --hash=1\n",
        "a==2 ; python_full_version >= '3.12' \\\n    --hash=2\n",
    )
    assert wheels.locked({"a"}, old + new) == old


def test_the_image_holds_what_runs_and_no_tools() -> None:
    names = wheels.needed()
    assert {"grpcio", "kopf", "kubernetes", "pydantic-core"} <= names
    assert not {"pytest", "mypy", "numpy", "ruff"} & names
    assert wheels.locked(names, LOCK.read_text())


def test_the_plugin_holds_what_people_look_at_too() -> None:
    names = wheels.needed(extras=plugin.EXTRAS)
    assert names - wheels.needed() >= {"common-expression-language", "rich"}
    assert not {"pytest", "mypy", "numpy", "ruff"} & names
    assert wheels.locked(names, LOCK.read_text())


def test_a_wheel_goes_where_debians_python_looks() -> None:
    files = {"p/a.py": b"1", "p-1.data/platlib/p/b.py": b"2", "p-1.data/scripts/run": b"3", "p-1.dist-info/RECORD": b""}
    assert wheels.unpack(wheel(files)) == {f"{wheels.SITE}/p/a.py": Entry(b"1"), f"{wheels.SITE}/p/b.py": Entry(b"2")}


def test_modules_come_with_bytecode_that_is_never_checked(tmp_path: Path) -> None:
    sources = {"lib/m.py": Entry(b"answer = 42\n"), "lib/broken.py": Entry(b"def"), "m.txt": Entry()}
    tree = layout.with_bytecode(sources, [sys.executable])
    assert set(tree) == {"lib/m.py", "lib/broken.py", "m.txt", "lib/__pycache__/m.cpython-311.pyc"}
    (tmp_path / "m.pyc").write_bytes(tree["lib/__pycache__/m.cpython-311.pyc"].content)
    spec = importlib.util.spec_from_file_location("m", tmp_path / "m.pyc")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.answer == 42


def test_a_python_that_does_not_run_here_is_told() -> None:
    with pytest.raises(layout.UnfitImageError, match=r"/bin/false .*does not compile"):
        layout.with_bytecode({"m.py": Entry(b"")}, ["/bin/false"])


def test_the_version_stands_in_one_place() -> None:
    text = (CHECKOUT / "pyproject.toml").read_text()
    (written,) = re.findall(r'(?m)^version = "(.*)"', text)
    assert importlib.metadata.version("hajob") == written == VERSION
    chart = yaml.safe_load((CHECKOUT / "charts/hajob/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (written, written)
