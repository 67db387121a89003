"""OCI image archives, as `ctr images import`, `podman load`, `skopeo` and `docker load` read them.

The format: opencontainers/image-spec, image-layout; `manifest.json` beside it is for Docker before 25.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from release.platforms import Platform
from release.tree import Entry, Tree, from_tar, to_tar

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
EPOCH: Final = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer.

    Attributes:
        said: what history says of it.
        tree: its files.
        directories: as `tree.to_tar` takes them.
    """

    said: str
    tree: Tree
    directories: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """What an archive holds: layers from the bottom up, and what a container of it begins with."""

    name: str
    platform: Platform
    layers: Sequence[Layer]
    config: Mapping[str, Any]


def archive(image: Image) -> bytes:
    """The archive; the same image gives the same bytes, as long as the same zlib compresses it."""
    blobs: dict[str, bytes] = {}
    tars = [to_tar(layer.tree, layer.directories) for layer in image.layers]
    layers = [_descriptor(blobs, _LAYER, gzip.compress(tar, 6, mtime=0)) for tar in tars]
    config = {
        "created": EPOCH,
        "architecture": image.platform.architecture,
        "os": "linux",
        "config": image.config,
        "rootfs": {"type": "layers", "diff_ids": [digest_of(tar) for tar in tars]},
        "history": [{"created": EPOCH, "created_by": layer.said} for layer in image.layers],
    }
    described = _descriptor(blobs, _CONFIG, _json(config))
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": described, "layers": layers}
    top = _descriptor(blobs, _MANIFEST, _json(manifest)) | {
        "platform": {"architecture": image.platform.architecture, "os": "linux"},
        "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name},
    }
    old = [{"Config": _path(described), "RepoTags": [image.name], "Layers": [_path(layer) for layer in layers]}]
    return to_tar(
        {
            "oci-layout": Entry(_json({"imageLayoutVersion": "1.0.0"})),
            "index.json": Entry(_json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [top]})),
            "manifest.json": Entry(_json(old)),
            **{f"blobs/sha256/{digest}": Entry(blob) for digest, blob in blobs.items()},
        }
    )


def read(path: Path) -> tuple[dict[str, Any], dict[str, Entry]]:
    """The configuration and the files of an archive's image.

    Raises:
        ValueError: a blob is not what its digest says.
    """
    with tarfile.open(path) as tar:
        files = {name: entry.content for name, entry in from_tar(tar).items()}
    manifest = json.loads(_blob(files, json.loads(files["index.json"])["manifests"][0]))
    tree: dict[str, Entry] = {}
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=BytesIO(_blob(files, layer))) as tar:
            tree |= from_tar(tar)
    config: dict[str, Any] = json.loads(_blob(files, manifest["config"]))
    return config, tree


def _blob(files: Mapping[str, bytes], descriptor: Mapping[str, Any]) -> bytes:
    blob = files[_path(descriptor)]
    if digest_of(blob) != descriptor["digest"]:
        raise ValueError(f"the blob {descriptor['digest']} is another one")
    return blob


def _path(descriptor: Mapping[str, Any]) -> str:
    return f"blobs/{str(descriptor['digest']).replace(':', '/')}"


def _descriptor(blobs: dict[str, bytes], media_type: str, blob: bytes) -> dict[str, Any]:
    digest = digest_of(blob)
    blobs[digest.removeprefix("sha256:")] = blob
    return {"mediaType": media_type, "digest": digest, "size": len(blob)}


def digest_of(content: bytes) -> str:
    """Return the digest of a blob, as manifests name it."""
    """Return the digest of a blob, as manifests name it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
