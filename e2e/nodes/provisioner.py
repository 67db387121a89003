"""Gives every claim of the node set's storage class a directory, so that a PersistentVolumeClaim just works.

All nodes share the machine's file system, so a volume is a hostPath volume that every node can mount.
"""

from __future__ import annotations

import logging
from pathlib import Path

from e2e.nodes.api import NodeApiClient, NodeApiError, follow
from e2e.nodes.config import JsonObject
from e2e.nodes.install import PROVISIONER, STORAGE_CLASS

log = logging.getLogger(__name__)


async def provision(client: NodeApiClient, directory: Path) -> None:
    """Watch claims for ever and make a volume for each one that waits."""
    async for event in follow(client, "/api/v1/persistentvolumeclaims", {}):
        claims = event["items"] if event["type"] == "SYNC" else [event["object"]]
        for claim in claims:
            if event["type"] != "DELETED" and _waits(claim):
                await _create(client, volume_for(claim, directory))


def _waits(claim: JsonObject) -> bool:
    return claim["spec"].get("storageClassName") == STORAGE_CLASS and not claim["spec"].get("volumeName")


def volume_for(claim: JsonObject, directory: Path) -> JsonObject:
    """The volume for a claim; its directory is made when it is mounted."""
    metadata = claim["metadata"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    reference |= {key: metadata[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": f"pvc-{metadata['uid']}",
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": STORAGE_CLASS,
            "claimRef": reference,
            "hostPath": {
                "path": str(directory / f"{metadata['namespace']}_{metadata['name']}"),
                "type": "DirectoryOrCreate",
            },
        },
    }


async def _create(client: NodeApiClient, volume: JsonObject) -> None:
    try:
        await client.request("POST", "/api/v1/persistentvolumes", volume)
    except NodeApiError as error:
        if error.status != 409:
            log.warning("cannot provision %s: %s", volume["metadata"]["name"], error)
