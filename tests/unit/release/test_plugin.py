import gzip
import hashlib
import io
import tarfile

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.version import VERSION
from release import plugin
from release.platforms import PLATFORMS, Platform
from release.tree import Entry, from_tar

TREE = {
    "usr/bin/python3": Entry(link="python3.11"),
    "usr/bin/python3.11": Entry(b"elf", executable=True),
    "etc/passwd": Entry(b"root"),
    "licenses/hajob/LICENSE": Entry(b"Apache"),
}


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=lambda platform: platform.debian)
def test_the_archive_brings_its_own_python(platform: Platform) -> None:
    content = gzip.decompress(plugin.archive(TREE, platform))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = from_tar(archive)
    assert {"kubectl-hajob", "kubectl_complete-hajob", "LICENSE", "root/usr/bin/python3"} <= found.keys()
    assert "root/etc/passwd" not in found
    assert found["kubectl-hajob"].executable
    started = found["kubectl-hajob"].content.decode()
    assert f'"$root/{platform.loader}"' in started
    assert "-m hajob.cli.main" in started


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=lambda platform: platform.debian)
def test_no_member_is_a_link_since_krew_refuses_them(platform: Platform) -> None:
    loader = f"lib/{platform.triplet}/loader.so"
    links = {
        platform.loader: Entry(link=f"/{loader}"),
        "usr/lib/libz.so.1": Entry(link="libz.so.1.2.13"),
        "usr/lib/libz.so": Entry(link="libz.so.1"),
        "usr/lib/data_linux.py": Entry(link="data.py"),
        "usr/share/doc/a": Entry(link="b"),
        "usr/lib/sitecustomize.py": Entry(link="/etc/sitecustomize.py"),
    }
    files = {
        loader: Entry(b"loader", executable=True),
        "usr/lib/libz.so.1.2.13": Entry(b"z"),
        "usr/lib/data.py": Entry(b"d"),
        "usr/share/doc/b/copyright": Entry(b"c"),
        "etc/sitecustomize.py": Entry(b"s"),
    }
    content = gzip.decompress(plugin.archive({**TREE, **links, **files}, platform))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert [member.name for member in archive if not member.isfile() and not member.isdir()] == []
        found = {path.removeprefix("root/"): entry for path, entry in from_tar(archive).items()}
    assert found[platform.loader] == Entry(b"loader", executable=True)
    assert found["usr/bin/python3"] == Entry(b"elf", executable=True)
    assert found["usr/lib/libz.so.1"] == found["usr/lib/libz.so"] == Entry(b"z")
    assert found["usr/lib/data.py"] == found["usr/lib/data_linux.py"] == Entry(b"d")
    assert not {loader, "usr/bin/python3.11", "usr/lib/libz.so.1.2.13"} & found.keys(), "each content stands once"
    assert not {"usr/share/doc/a", "usr/lib/sitecustomize.py"} & found.keys(), "to a directory, out of the archive"


def test_krews_manifest_names_every_archive_and_its_digest() -> None:
    made = plugin.manifest({"linux/amd64": b"a", "linux/arm64": b"b"}, "https://example.org/x")
    amd64, arm64 = made["spec"]["platforms"]
    assert amd64["selector"]["matchLabels"] == {"os": "linux", "arch": "amd64"}
    assert arm64["uri"] == f"https://example.org/x/kubectl-hajob-{VERSION}-linux-arm64.tar.gz"
    assert arm64["sha256"] == hashlib.sha256(b"b").hexdigest()
    assert made["spec"]["version"] == f"v{VERSION}"


def test_krew_says_how_completion_gets_on_the_path() -> None:
    caveats = plugin.manifest({}, "https://example.org/x")["spec"]["caveats"]
    assert "kubectl_complete-hajob" in caveats
    assert caveats.splitlines()[-1].strip() in (CHECKOUT / "docs/admin/admin.md").read_text()
