import gzip
import hashlib
import io
import tarfile

import pytest

from hajob.version import VERSION
from release import plugin
from release.platforms import PLATFORMS, Platform
from release.tree import Entry, from_tar

TREE = {
    "usr/bin/python3.11": Entry(b"elf", executable=True),
    "etc/passwd": Entry(b"root"),
    "licenses/hajob/LICENSE": Entry(b"Apache"),
}


@pytest.mark.parametrize("platform", PLATFORMS.values(), ids=lambda platform: platform.debian)
def test_the_archive_brings_its_own_python(platform: Platform) -> None:
    content = gzip.decompress(plugin.archive(TREE, platform))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = from_tar(archive)
    assert {"kubectl-hajob", "kubectl_complete-hajob", "LICENSE", "root/usr/bin/python3.11"} <= found.keys()
    assert "root/etc/passwd" not in found
    assert found["kubectl-hajob"].executable
    started = found["kubectl-hajob"].content.decode()
    assert f'"$root/{plugin.LOADERS[platform.name]}"' in started
    assert "-m hajob.cli.main" in started


def test_krews_manifest_names_every_archive_and_its_digest() -> None:
    made = plugin.manifest({"linux/amd64": b"a", "linux/arm64": b"b"}, "https://example.org/x")
    amd64, arm64 = made["spec"]["platforms"]
    assert amd64["selector"]["matchLabels"] == {"os": "linux", "arch": "amd64"}
    assert arm64["uri"] == f"https://example.org/x/kubectl-hajob-{VERSION}-linux-arm64.tar.gz"
    assert arm64["sha256"] == hashlib.sha256(b"b").hexdigest()
    assert made["spec"]["version"] == f"v{VERSION}"
