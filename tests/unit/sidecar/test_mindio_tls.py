"""What MindIO is told of its certificates, and the OpenSSL that is copied for it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trainer_sidecar import mindio_tls


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "mindio"
    made.mkdir()
    (made / "tls.key").write_text("-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n")
    return made


def give_libraries(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image whose OpenSSL is behind links, as everywhere."""
    where.mkdir()
    for name in mindio_tls.LIBRARIES:
        (where / f"{name}.3.0").write_bytes(name.encode())
        (where / f"{name}.3").symlink_to(where / f"{name}.3.0")
    monkeypatch.setattr(mindio_tls, "_library_directories", lambda: [str(where)])


def test_nothing_is_told_where_the_job_wants_no_tls(tmp_path: Path) -> None:
    assert mindio_tls.tls_info_of_job({}, str(tmp_path)) == ""


def test_paths_key_and_copied_libraries_are_told(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_libraries(tmp_path / "lib", monkeypatch)
    info = mindio_tls.tls_info_of_job({mindio_tls.DIRECTORY: str(directory)}, str(tmp_path))
    parts = dict(part.split(":", 1) for part in info.split(";"))
    assert parts.pop("tlsPk").startswith("-----BEGIN PRIVATE KEY-----")
    package = tmp_path / "openssl"
    assert parts == {
        "tlsCert": str(directory / "tls.crt"),
        "tlsCaPath": str(directory),
        "tlsCaFile": "ca.crt",
        "packagePath": str(package),
    }
    for name in mindio_tls.LIBRARIES:
        copied = package / name
        assert not copied.is_symlink()
        assert stat.S_IMODE(copied.stat().st_mode) == 0o500
        assert copied.read_bytes() == name.encode()
    assert sorted(path.name for path in package.iterdir()) == sorted(mindio_tls.LIBRARIES)


def test_what_is_missing_is_named(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindio_tls, "_library_directories", list)
    with pytest.raises(mindio_tls.MindIOTLSError, match="has no OpenSSL"):
        mindio_tls.tls_info_of_job({mindio_tls.DIRECTORY: str(directory)}, str(tmp_path))
    with pytest.raises(mindio_tls.MindIOTLSError, match="cannot be read"):
        mindio_tls.tls_info_of_job({mindio_tls.DIRECTORY: str(tmp_path / "nowhere")}, str(tmp_path))


def test_a_path_that_mindio_would_cut_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_libraries(tmp_path / "lib", monkeypatch)
    odd = tmp_path / "a;b"
    odd.mkdir()
    (odd / "tls.key").write_text("key")
    with pytest.raises(mindio_tls.MindIOTLSError, match="semicolon"):
        mindio_tls.tls_info_of_job({mindio_tls.DIRECTORY: str(odd)}, str(tmp_path))
