import io
import json
import tarfile
from pathlib import Path

import pytest

from release import oci
from release.platforms import PLATFORMS
from release.tree import Entry, from_tar, to_tar

BASE = oci.Layer("base", {"etc/a": Entry(b"1"), "etc/b": Entry(b"1")}, {"tmp": 0o1777})
TOP = oci.Layer("top", {"etc/b": Entry(b"2")})
IMAGE = oci.Image("docker.io/hajob/x:1", PLATFORMS["linux/arm64"], [BASE, TOP], {"User": "65532:65532"})


def written(tmp_path: Path, content: bytes | None = None) -> Path:
    path = tmp_path / "image.tar"
    path.write_bytes(oci.archive(IMAGE) if content is None else content)
    return path


def files(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {name: entry.content for name, entry in from_tar(archive).items()}


def test_the_same_image_gives_the_same_bytes() -> None:
    assert oci.archive(IMAGE) == oci.archive(IMAGE)


def test_upper_layers_cover_lower_ones(tmp_path: Path) -> None:
    config, tree = oci.read(written(tmp_path))
    assert tree == {"etc/a": Entry(b"1"), "etc/b": Entry(b"2")}
    assert (config["architecture"], config["os"], config["config"]["User"]) == ("arm64", "linux", "65532:65532")


def test_the_index_names_image_and_platform() -> None:
    (manifest,) = json.loads(files(oci.archive(IMAGE))["index.json"])["manifests"]
    assert manifest["annotations"]["io.containerd.image.name"] == "docker.io/hajob/x:1"
    assert manifest["platform"] == {"architecture": "arm64", "os": "linux"}


def test_old_docker_finds_the_same_blobs() -> None:
    found = files(oci.archive(IMAGE))
    (old,) = json.loads(found["manifest.json"])
    assert old["RepoTags"] == ["docker.io/hajob/x:1"]
    assert {old["Config"], *old["Layers"]} <= found.keys()


def test_diff_ids_are_those_of_the_uncompressed_layers(tmp_path: Path) -> None:
    config, _ = oci.read(written(tmp_path))
    layers = [to_tar(layer.tree, layer.directories) for layer in (BASE, TOP)]
    assert config["rootfs"]["diff_ids"] == [oci.digest_of(tar) for tar in layers]


def test_a_damaged_blob_is_refused(tmp_path: Path) -> None:
    found = files(oci.archive(IMAGE))
    path = json.loads(found["manifest.json"])[0]["Layers"][0]
    damaged = to_tar({name: Entry(content[:-1] if name == path else content) for name, content in found.items()})
    with pytest.raises(ValueError, match="is another one"):
        oci.read(written(tmp_path, damaged))
