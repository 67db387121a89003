"""What an API server would refuse in the pods of a manifest: the CRD keeps any pod, and the dry run needs a server.

Fields, types and what must be there come from the Kubernetes of the client's package; of the rules beyond types those
stand here that people break by hand.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from hajob.sources.quota import parse_thousandths
from hajob.sources.reading import items, mapping, text

ERROR: Final = "error"
NOTE: Final = "note"
_PODS: Final = ("spec.template.spec", "spec.pause.template.spec")
_ITEM: Final = re.compile(r"[Ll]ist\[(\w+)\]")
_SIMILAR: Final = 0.8
"""Likeness at which a field is taken for a misspelling of another; what is like none may be of a newer Kubernetes."""
_QUANTITIES: Final = frozenset({"requests", "limits", "overhead", "sizeLimit", "divisor"})
"""Fields that the package calls text and in which a server takes numbers, too."""
_ONE_OF: Final = {
    ("V1Container", "imagePullPolicy"): ("Always", "IfNotPresent", "Never"),
    ("V1PodSpec", "dnsPolicy"): ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ("V1Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("V1Toleration", "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("V1ContainerPort", "protocol"): ("TCP", "UDP", "SCTP"),
    ("V1NodeSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    ("V1LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("V1VolumeMount", "mountPropagation"): ("None", "HostToContainer", "Bidirectional"),
}
"""Words that are allowed in a field, by the kind that has it."""


def findings_of_pods(raw: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield grade and message of what is wrong with the pods of a job's manifest."""
    for path in _PODS:
        found: Any = raw
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            yield from _findings_of_fields("V1PodSpec", found, path)
            broken = list(_broken_types(found, path))
            yield from ((ERROR, message) for message in broken)
            if not broken:
                yield from ((ERROR, message) for message in _broken_rules(found, path))


def _findings_of_fields(kind: str, value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that the package does not know, and words that a field does not take."""
    from kubernetes.client import models

    model = getattr(models, kind, None)
    if model is None or not isinstance(value, Mapping):
        return
    known = {name: model.openapi_types[own] for own, name in model.attribute_map.items()}
    for field, below in value.items():
        where, allowed = f"{path}.{field}", _ONE_OF.get((kind, str(field)))
        if field not in known:
            meant = difflib.get_close_matches(str(field), known, 1, _SIMILAR)
            hint = f"; did you mean {meant[0]}?" if meant else ", or it is newer than this command"
            yield (ERROR if meant else NOTE), f'unknown field "{where}"{hint}'
        elif allowed is not None and isinstance(below, str) and below and below not in allowed:
            yield ERROR, f"{where}: {below} is none of {', '.join(allowed)}"
        elif item := _ITEM.match(known[field]):
            for number, one in enumerate(items(below)):
                yield from _findings_of_fields(item.group(1), one, f"{where}[{number}]")
        else:
            yield from _findings_of_fields(known[field], below, where)


def _broken_types(pod: Mapping[str, Any], path: str) -> Iterator[str]:
    from kubernetes.client import models

    try:
        models.V1PodSpec.model_validate(dict(pod))
    except ValidationError as refusal:
        for one in refusal.errors():
            is_number = isinstance(one["input"], int | float) and not isinstance(one["input"], bool)
            if is_number and _QUANTITIES.intersection(one["loc"]):
                continue
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in one["loc"])
            yield f"{path}{where}: {one['msg']}"


def _broken_rules(pod: Mapping[str, Any], path: str) -> Iterator[str]:
    volumes = {text(mapping(one).get("name")) for one in items(pod.get("volumes"))}
    for part in ("initContainers", "containers"):
        for number, container in enumerate(map(mapping, items(pod.get(part)))):
            where = f"{path}.{part}[{number}]"
            if not container.get("image"):
                yield f"{where}.image: Field required"
            yield from _broken_mounts(container, volumes, where)
            yield from _broken_resources(container, where)


def _broken_mounts(container: Mapping[str, Any], volumes: set[str], where: str) -> Iterator[str]:
    seen: set[str] = set()
    for place, mount in enumerate(map(mapping, items(container.get("volumeMounts")))):
        name, at = text(mount.get("name")), text(mount.get("mountPath"))
        if name not in volumes:
            yield f"{where}.volumeMounts[{place}].name: {name}: there is no such volume in spec.volumes of the pod"
        if at in seen:
            yield f"{where}.volumeMounts[{place}].mountPath: {at}: a path is mounted once only"
        seen.add(at)


def _broken_resources(container: Mapping[str, Any], where: str) -> Iterator[str]:
    asked, limits = (mapping(mapping(container.get("resources")).get(part)) for part in ("requests", "limits"))
    for name, wanted in asked.items():
        amounts = [parse_thousandths(str(value)) for value in (wanted, limits.get(name)) if value is not None]
        if len(amounts) == 2 and None not in amounts and amounts[0] > amounts[1]:  # type: ignore[operator]
            yield f"{where}.resources.requests.{name}: {wanted} is more than its limit, {limits[name]}"
