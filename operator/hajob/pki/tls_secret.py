"""The Secret with the certificates of a job; who makes them is hajob.pki.certificates."""

import base64
from collections.abc import Mapping
from typing import Final

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.pods.naming import owner_references, tls_secret_name

IDENTITIES: Final = ("agent", "coordinator", "operator")
KEYS: Final = ("ca.crt", *(f"{identity}.{kind}" for identity in IDENTITIES for kind in ("crt", "key")))
MINDIO_AUTHORITY, MINDIO_AUTHORITY_KEY, MINDIO_CERTIFICATE, MINDIO_KEY = MINDIO_KEYS = (
    "mindio-ca.crt",
    "mindio-ca.key",
    "mindio.crt",
    "mindio.key",
)
"""MindIO's own, where the job wants its links encrypted (`network.mindIOTLSPolicy`). No pod has the authority's key."""


def tls_secret(job: HATrainingJob, material: Mapping[str, bytes]) -> Json:
    """Build the Secret with the certificates of the job, ready to be created.

    Args:
        job: the job, with its UID.
        material: PEM files by the names in `KEYS`, with or without `MINDIO_KEYS`.

    Raises:
        ValueError: a file is missing or unknown.
    """
    if set(material) not in (set(KEYS), {*KEYS, *MINDIO_KEYS}):
        raise ValueError(f"certificates of {job.metadata.name}: got {sorted(material)}, need {sorted(KEYS)}")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": tls_secret_name(job),
            "namespace": job.metadata.namespace,
            "labels": {names.LABEL_JOB_NAME: job.metadata.name, names.LABEL_JOB_UID: job.metadata.uid},
            "ownerReferences": owner_references(job),
        },
        "data": {name: base64.b64encode(material[name]).decode() for name in sorted(material)},
    }


def read_tls_secret(secret: Json) -> dict[str, bytes]:
    """Return the PEM files in a Secret of the API server, by the names in `KEYS` and, if it has them, `MINDIO_KEYS`.

    Raises:
        ValueError: a file is missing.
    """
    data = secret.get("data") or {}
    if missing := [name for name in KEYS if name not in data]:
        name = secret.get("metadata", {}).get("name", "?")
        raise ValueError(f"Secret {name} lacks {', '.join(missing)}: delete it, and Hajob makes a new one")
    own = MINDIO_KEYS if all(name in data for name in MINDIO_KEYS) else ()
    return {name: base64.b64decode(data[name]) for name in (*KEYS, *own)}
