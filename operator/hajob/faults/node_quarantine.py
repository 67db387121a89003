"""The NodeQuarantine of a node, whoever asks for it: the operator for faults, the work of a pause, an admin."""

from hajob.api import constants as names
from hajob.api.base import Json


def node_quarantine(spec: Json, node_uid: str) -> Json:
    """Build the NodeQuarantine, ready to be created; it goes with its node.

    Args:
        spec: its `spec` as JSON, the node's name included.
        node_uid: of the node; empty where it is not known: the object then stays until it is deleted.
    """
    node = spec["nodeName"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.QUARANTINE_KIND,
        "metadata": {"name": node} | ({"ownerReferences": [owner]} if node_uid else {}),
        "spec": spec,
    }
