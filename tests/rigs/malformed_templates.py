"""Pod templates with a value of a wrong kind: what people write by mistake, at every place Hajob builds on."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.conditions import Reason
from hajob.api.job import HATrainingJob
from hajob.capacity.demand import Demand
from hajob.job.admission import evaluate_pods
from hajob.kube.client import ApiError, Kube
from hajob.plan.flags import read_flags
from hajob.plan.policy import layout_from_spec
from hajob.pods.settings import PodSettings
from hajob.sources.node import NodeView

QUICKSTART: Json = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text())
RULES = "requiredDuringSchedulingIgnoredDuringExecution"
TRAINER = ("containers", 0)
LABEL = "generation"
"""Of nodes; its values are numbers."""
UNKNOWN_WORDS = [(("dnsPolicy",), "Sometimes"), ((*TRAINER, "imagePullPolicy"), "Sometimes")]
"""Of the right kind, and nothing that Kubernetes knows; the server in memory does not know its words."""
KNOWN_TO_THE_CRD_ONLY = {"command", "args", "restartPolicy"}
"""What is put together with Hajob's own, or overwritten: the CRD has to refuse it."""
SETTINGS = PodSettings(sidecar_image="hajob/sidecar:dev")
NODE = NodeView("node", chips={names.DEFAULT_RESOURCE_NAME: 2}, labels={LABEL: "7"})


def _term(key: object, operator: str, values: object) -> list[Json]:
    """Alternatives of a node affinity: one with one requirement."""
    return [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]


PLACES: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("tolerations",): ("text", {"key": "a"}, ["text"], [{"key": 1}]),
    ("nodeSelector",): ("text", ["a"], {"a": 1}, {"a": {"b": "c"}}),
    ("affinity",): ("text", ["a"]),
    ("affinity", "nodeAffinity"): ("text", ["a"]),
    ("affinity", "nodeAffinity", RULES): ("text", ["a"]),
    ("affinity", "nodeAffinity", RULES, "nodeSelectorTerms"): (
        "text",
        {"a": "b"},
        ["a"],
        [{"matchFields": "text"}],
        _term(LABEL, "Gt", [5]),  # without the quotes of a label's value
        _term([LABEL], "In", ["5"]),
        _term(LABEL, "In", 5),
    ),
    ("affinity", "podAntiAffinity"): ("text", ["a"]),
    ("affinity", "podAntiAffinity", RULES): ("text", {"a": "b"}, ["a"]),
    ("volumes",): ("text", {"name": "a"}, ["text"]),
    ("initContainers",): ("text", {"name": "a"}, ["text"]),
    (*TRAINER, "env"): ("text", {"A": "b"}, ["A=b"], [{"name": 1, "value": "x"}], [{"name": "A", "value": 1}]),
    (*TRAINER, "envFrom"): ("text", ["text"]),
    (*TRAINER, "volumeMounts"): (
        "text",
        ["text"],
        [{"name": "a", "mountPath": 1}],
        [{"name": "a", "mountPath": ["b"]}],
        [{"name": "checkpoints", "mountPath": "/ckpt"}, {"name": "checkpoints"}],
    ),
    (*TRAINER, "volumeMounts", 0, "mountPath"): (None,),
    (*TRAINER, "resources"): ("text", ["a"]),
    (*TRAINER, "resources", "requests"): ("text", ["a"], {"cpu": "lots"}, {"cpu": {"a": "b"}}),
    (*TRAINER, "resources", "limits"): ("text", ["a"]),
    (*TRAINER, "command"): ("bash train.sh", [1]),
    (*TRAINER, "securityContext"): ("text", ["a"]),
    ("securityContext",): ("text", ["a"]),
    ("terminationGracePeriodSeconds",): ("text", [1]),
    ("imagePullSecrets",): ("text", ["text"]),
    ("priorityClassName",): (1, ["a"]),
    ("serviceAccountName",): (1, ["a"]),
    ("schedulerName",): (1, ["a"]),
    ("runtimeClassName",): (1, ["a"]),
    ("dnsPolicy",): (1, ["a"]),
    ("restartPolicy",): (1, ["a"], "Sometimes"),
    ("hostNetwork",): ("text", 1, ["a"]),
    ("hostAliases",): ("text", ["a"]),
    ("enableServiceLinks",): ("text", 1),
    ("automountServiceAccountToken",): ("text", 1),
    ("activeDeadlineSeconds",): ("text", [1]),
    ("topologySpreadConstraints",): ("text", {"maxSkew": 1}, ["text"]),
    ("affinity", "podAffinity"): ("text", ["a"]),
    ("affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"): ("text", {"weight": 1}, ["a"]),
    (*TRAINER, "image"): (1, ["a"]),
    (*TRAINER, "imagePullPolicy"): (1, ["a"]),
    (*TRAINER, "args"): ("text", [1]),
    (*TRAINER, "ports"): ("text", [80], [{"containerPort": "http"}]),
    (*TRAINER, "workingDir"): (1, ["a"]),
    (*TRAINER, "livenessProbe"): ("text", ["a"]),
    (*TRAINER, "lifecycle"): ("text", ["a"]),
    (*TRAINER, "terminationMessagePath"): (1, ["a"]),
    ("containers",): ("text", {"name": "trainer"}, ["trainer"], []),
    ("containers", 0, "name"): (1, ["a"]),
}
MALFORMED = [(place, value) for place, values in PLACES.items() for value in values]


def shown(case: tuple[tuple[str | int, ...], Any]) -> str:
    """Return the name of a case."""
    place, value = case
    return f"{'.'.join(map(str, place)).replace(RULES, 'required')}={value}"


def job_with(place: tuple[str | int, ...], value: object) -> Json:
    """Build the quickstart with this value in its template's spec; None takes the place away."""
    body = copy.deepcopy(QUICKSTART)
    node: Any = body["spec"]["template"]["spec"]
    for part in place[:-1]:
        if isinstance(node, dict) and part not in node:
            node[part] = {}
        node = node[part]
    if value is None:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return body


async def check_refused_in_words(kube: Kube, case: Any) -> None:
    """Check that the CRD or the operator refuses a template, and that whatever reads it before bears it."""
    stored = None
    try:
        stored = await kube.create_object(names.PLURAL, "default", job_with(*case))
    except ApiError as error:
        refused = error
    if stored is None:
        assert refused.status == 422
        assert "spec.template" in refused.message or "volumeMounts, mountPath" in refused.message
        return
    job = HATrainingJob.from_object(stored)
    read_flags(job.spec.template)
    Demand.from_spec(job.spec, layout_from_spec(job.spec)).node_filter()(NODE)
    reason, message = await evaluate_pods(kube, job, SETTINGS)
    assert reason in {Reason.INVALID, Reason.POD_REFUSED}
    assert message
