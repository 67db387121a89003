"""The volumes of a pod as directories below the node's own.

What a volume needs from the API server may not be there yet (a Secret the operator is about to make, the node
authorizer that has not seen the pod): then making it fails with the sentence a kubelet would say, and the pod tries
again shortly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.nodes.api import NodeApiClient, NodeApiError
from e2e.nodes.config import JsonObject
from e2e.nodes.environment import PodFacts, ReferenceMissingError, field_value, object_files, resource_value

log = logging.getLogger(__name__)

_PLURALS = {"configmap": "configmaps", "secret": "secrets"}
_EMPTY_KINDS = ("emptyDir", "ephemeral", "csi", "nfs")


class VolumeNotReadyError(Exception):
    """A volume cannot be made yet; the message says why."""


@dataclass
class TokenFile:
    """A projected service account token that has to be renewed; times in seconds since the epoch."""

    path: Path
    source: JsonObject
    renew_at: float


class VolumeMaker:
    """Makes the volumes of one pod.

    Args:
        client: the node's connection.
        facts: the pod.
        directory: where the pod's own volumes go.
        claims: where volumes of claims go that no hostPath stands behind.
        host_paths: real places of host paths, by prefix.
    """

    def __init__(
        self, client: NodeApiClient, facts: PodFacts, directory: Path, claims: Path, host_paths: Mapping[str, Path]
    ) -> None:
        self._client = client
        self._facts = facts
        self._directory = directory
        self._claims = claims
        self._host_paths = host_paths
        self._namespace: str = facts.pod["metadata"]["namespace"]
        self.tokens: list[TokenFile] = []

    async def make_all(self) -> dict[str, Path]:
        """Make every volume of the pod; volume name → place.

        Raises:
            VolumeNotReadyError: one of them is not possible yet.
        """
        self.tokens.clear()
        volumes = self._facts.pod["spec"].get("volumes") or []
        places = await asyncio.gather(*(self._make(volume) for volume in volumes), return_exceptions=True)
        for volume, place in zip(volumes, places, strict=True):
            if isinstance(place, ReferenceMissingError | NodeApiError | OSError):
                message = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {place}'
                raise VolumeNotReadyError(message) from place
            if isinstance(place, BaseException):
                raise place
        return {volume["name"]: place for volume, place in zip(volumes, places, strict=True) if isinstance(place, Path)}

    async def refresh(self) -> None:
        """Bring Secrets and ConfigMaps as they are now into their places; what is gone stays as it was."""
        for volume in self._facts.pod["spec"].get("volumes") or []:
            if "secret" not in volume and "configMap" not in volume:
                continue
            try:
                files = await self._files(volume)
            except (ReferenceMissingError, NodeApiError) as error:
                log.warning('volume "%s" keeps what it has: %s', volume["name"], error)
                continue
            for file, content, mode in files:
                place = self._directory / str(volume["name"]) / file
                if not place.is_file() or place.read_bytes() != content:
                    _write(place, content, mode)

    async def _make(self, volume: JsonObject) -> Path:
        own = self._directory / str(volume["name"])
        if "hostPath" in volume:
            return self._host_path(volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(volume["persistentVolumeClaim"]["claimName"])
        own.mkdir(parents=True, exist_ok=True)
        if any(kind in volume for kind in _EMPTY_KINDS):
            return own
        for file, content, mode in await self._files(volume):
            _write(own / file, content, mode)
        return own

    async def _files(self, volume: JsonObject) -> list[tuple[str, bytes, int]]:
        for kind, key in (("configmap", "configMap"), ("secret", "secret")):
            if key in volume:
                source = volume[key]
                name = source.get("name") or source.get("secretName", "")
                return await self._object(kind, name, source, source.get("defaultMode") or 0o644)
        if "downwardAPI" in volume:
            return self._downward(volume["downwardAPI"], volume["downwardAPI"].get("defaultMode") or 0o644)
        if "projected" in volume:
            return await self._projected(volume)
        kinds = ", ".join(sorted(set(volume) - {"name"}))
        raise ReferenceMissingError(f"process nodes have no volumes of kind {kinds}")

    async def _projected(self, volume: JsonObject) -> list[tuple[str, bytes, int]]:
        mode = volume["projected"].get("defaultMode") or 0o644
        parts = await asyncio.gather(
            *(self._projection(source, volume["name"], mode) for source in volume["projected"].get("sources") or [])
        )
        return [file for part in parts for file in part]

    async def _projection(self, source: JsonObject, volume: str, mode: int) -> list[tuple[str, bytes, int]]:
        for kind, key in (("configmap", "configMap"), ("secret", "secret")):
            if key in source:
                return await self._object(kind, source[key].get("name", ""), source[key], mode)
        if "downwardAPI" in source:
            return self._downward(source["downwardAPI"], mode)
        if "serviceAccountToken" in source:
            wanted = source["serviceAccountToken"]
            token, renew_at = await self.request_token(wanted)
            self.tokens.append(TokenFile(self._directory / volume / wanted["path"], wanted, renew_at))
            return [(wanted["path"], token, 0o600)]
        raise ReferenceMissingError(f"process nodes project no {', '.join(sorted(source))}")

    async def _object(self, kind: str, name: str, source: JsonObject, mode: int) -> list[tuple[str, bytes, int]]:
        path = f"/api/v1/namespaces/{self._namespace}/{_PLURALS[kind]}/{name}"
        try:
            body = await self._client.request("GET", path)
        except NodeApiError as error:
            if error.status == 404 and source.get("optional"):
                return []
            if error.status == 404:
                raise ReferenceMissingError(f'{kind} "{name}" not found') from error
            raise
        return select(object_files(kind, body), source, mode, f"{kind} {self._namespace}/{name}")

    def _downward(self, source: JsonObject, mode: int) -> list[tuple[str, bytes, int]]:
        files = []
        for item in source.get("items") or []:
            if "fieldRef" in item:
                value = field_value(self._facts, item["fieldRef"]["fieldPath"])
            else:
                value = resource_value(self._facts, {}, item["resourceFieldRef"])
            files.append((item["path"], value.encode(), item.get("mode") or mode))
        return files

    async def request_token(self, wanted: JsonObject) -> tuple[bytes, float]:
        """A token for the pod's service account, bound to the pod; also when to renew it (80 % of its life)."""
        metadata = self._facts.pod["metadata"]
        account = self._facts.pod["spec"].get("serviceAccountName") or "default"
        spec: JsonObject = {
            "expirationSeconds": wanted.get("expirationSeconds") or 3600,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
        }
        if wanted.get("audience"):
            spec["audiences"] = [wanted["audience"]]
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self._client.request("POST", path, body)
        renew_at = time.time() + 0.8 * float(answer["spec"].get("expirationSeconds") or 3600)
        return answer["status"]["token"].encode(), renew_at

    async def renew(self, token: TokenFile) -> None:
        """Replace a token file by one with a new token, in one step for whoever reads it."""
        content, token.renew_at = await self.request_token(token.source)
        _write(token.path, content, 0o600)

    def _host_path(self, source: JsonObject) -> Path:
        wanted: str = source["path"].rstrip("/") or "/"
        kind: str = source.get("type") or ""
        place = translate_host_path(wanted, self._host_paths)
        if kind == "DirectoryOrCreate" or (not kind and not place.exists()):
            place.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            place.touch()
        elif (kind == "Directory" and not place.is_dir()) or (kind == "File" and not place.is_file()):
            raise ReferenceMissingError(f"hostPath type check failed: {wanted} is not a {kind.lower()}")
        return place

    async def _claim(self, name: str) -> Path:
        claim = await self._client.request("GET", f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{name}")
        volume_name = claim["spec"].get("volumeName")
        if volume_name:
            volume = await self._client.request("GET", f"/api/v1/persistentvolumes/{volume_name}")
            if "hostPath" in volume["spec"]:
                return self._host_path({"type": "DirectoryOrCreate", **_without_type(volume["spec"]["hostPath"])})
        place = self._claims / f"{self._namespace}_{name}"
        place.mkdir(parents=True, exist_ok=True)
        return place


def _without_type(source: JsonObject) -> JsonObject:
    return {key: value for key, value in source.items() if key != "type" or value}


def translate_host_path(path: str, places: Mapping[str, Path]) -> Path:
    """The real place of a host path: that of the longest configured prefix, else the path itself."""
    for prefix in sorted(places, key=len, reverse=True):
        below = path.removeprefix(prefix.rstrip("/"))
        if below != path and (not below or below.startswith("/")):
            return places[prefix] / below.lstrip("/")
    return Path(path)


def select(files: Mapping[str, bytes], source: JsonObject, mode: int, what: str) -> list[tuple[str, bytes, int]]:
    """The files a volume source shows: all, or those of its ``items``.

    Raises:
        ReferenceMissingError: an item names a key that is not there and the source is not optional.
    """
    items = source.get("items")
    if not items:
        return [(name, content, mode) for name, content in files.items()]
    missing = [item["key"] for item in items if item["key"] not in files]
    if missing and not source.get("optional"):
        raise ReferenceMissingError(f"references non-existent key {missing[0]} in {what}")
    present = [item for item in items if item["key"] in files]
    return [(item["path"], files[item["key"]], item.get("mode") or mode) for item in present]


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o200), "wb") as file:
        file.write(content)
    fresh.chmod(mode)
    fresh.replace(path)
