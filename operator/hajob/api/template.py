"""How much of the pod template the CRD declares.

The full PodSpec schema would be several hundred kB, would eat the budget of the rules and would age with every
Kubernetes release. So the template is kept as it is, and only what a rule must see or Hajob builds upon is declared,
no deeper than that: text where a list belongs is refused at once. The rest is checked by the API server itself when the
first pod is created as a dry run.

The list of containers is deliberately no list-map: two trainers should be refused with our sentence.
"""

from typing import Annotated, Final

from pydantic import WithJsonSchema

from hajob.api.base import Json, validation_rule
from hajob.api.constants import HOOK_CONTAINER, TRAINER_CONTAINER

_KEEP: Final[Json] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_WORDS: Final[Json] = {"type": "array", "maxItems": 512, "items": {"type": "string", "maxLength": 65536}}
_ITEMS: Final[Json] = {"type": "array", "maxItems": 512, "items": _KEEP}
_AS_IN_A_POD: Final[Json] = {"description": "As in a Pod."}
_TEXT: Final[Json] = {"type": "string", **_AS_IN_A_POD}
_PATH: Final[Json] = {"type": "string", "maxLength": 1024, **_AS_IN_A_POD}
_NAME: Final[Json] = {"type": "string", "maxLength": 253, **_AS_IN_A_POD}
_TEXTS: Final[Json] = {"type": "object", "additionalProperties": {"type": "string"}, **_AS_IN_A_POD}
_AMOUNTS: Final[Json] = {
    "type": "object",
    "maxProperties": 64,
    "additionalProperties": {"x-kubernetes-int-or-string": True},
    **_AS_IN_A_POD,
}


def _object_keeping(**properties: Json) -> Json:
    """An object of which only these are declared."""
    return {**_KEEP, "properties": properties, **_AS_IN_A_POD}


def _list_keeping(**properties: Json) -> Json:
    return {**_ITEMS, "items": _object_keeping(**properties), **_AS_IN_A_POD}


_TOLERATIONS: Final[Json] = _list_keeping(key=_TEXT, operator=_TEXT, value=_TEXT, effect=_TEXT)
_LIST: Final[Json] = {**_ITEMS, **_AS_IN_A_POD}
_OBJECT: Final[Json] = {**_KEEP, **_AS_IN_A_POD}
_METADATA: Final[Json] = {
    "type": "object",
    "properties": {
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "creationTimestamp": {"type": "string", "nullable": True, "description": "Of no meaning; tools write null."},
    },
}
"""Nothing else of a template's metadata comes into its pods, so nothing else is known."""
_TERMS: Final[Json] = _list_keeping(matchFields=_LIST, matchExpressions=_LIST)
_RULES: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_AFFINITY: Final[Json] = _object_keeping(
    nodeAffinity=_object_keeping(**{_RULES: _object_keeping(nodeSelectorTerms=_TERMS)}),
    podAffinity=_object_keeping(**{_RULES: _LIST}),
    podAntiAffinity=_object_keeping(**{_RULES: _LIST}),
)

# What stays as it is even while a job is suspended, so that a suspended job comes back as the same training.
_KEPT_IN_CONTAINER: Final = ("command", "args", "env", "envFrom", "volumeMounts", "resources", "workingDir")
_KEPT_IN_SPEC: Final = ("volumes", "initContainers", "serviceAccountName", "affinity", "hostNetwork")

_CONTAINER: Final[Json] = {
    **_KEEP,
    "description": "A container as in a Pod; everything that is not declared here is kept as it is.",
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "maxLength": 63,
            "description": "Name of the container; the one that trains is called trainer.",
        },
        "image": {"type": "string", "maxLength": 1024, "description": "The image."},
        "command": {**_WORDS, "description": "The start command; the trainer needs one."},
        "args": {**_WORDS, "description": "Arguments of the start command."},
        "env": {
            **_list_keeping(name=_TEXT, value=_TEXT),
            "description": "Environment; what Hajob sets itself cannot be overridden.",
        },
        "envFrom": {**_ITEMS, "description": "Environment from ConfigMaps and Secrets."},
        "volumeMounts": {
            **_list_keeping(name=_TEXT, mountPath=_PATH),
            "description": "Mounts, among them that of checkpoint.path.",
        },
        "resources": {
            **_object_keeping(requests=_AMOUNTS, limits=_AMOUNTS),
            "description": "CPU and memory; the chips are added.",
        },
        "livenessProbe": {**_OBJECT, "description": "As in a Pod; trainer has none: Hajob finds hangs."},
        "startupProbe": {**_OBJECT, "description": "As in a Pod; trainer has none."},
        "restartPolicy": {**_NAME, "description": "As in a Pod; trainer has none: Hajob restarts ranks."},
        "restartPolicyRules": {**_LIST, "description": "As in a Pod; trainer has none."},
        "lifecycle": {**_object_keeping(stopSignal=_NAME), "description": "As in a Pod; trainer is ended by SIGTERM."},
        "workingDir": {"type": "string", "maxLength": 4096, "description": "Where the command starts."},
    },
}

_MISSING_CONTAINERS: Final = (
    "spec.template.spec.containers is missing (look for a misspelled `containers`): add one container named trainer "
    "with image and command"
)
_ONE_TRAINER: Final = (
    "spec.template.spec.containers needs exactly one container named trainer: name the container that trains "
    "`trainer`, and give every other one another name"
)

TEMPLATE_SCHEMA: Final[Json] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {**_METADATA, "description": "Labels and annotations of every rank pod."},
        "spec": {
            **_KEEP,
            "description": (
                "PodSpec of every rank pod with one container named trainer. What Hajob adds (chips, addresses, "
                "placement) need not be written."
            ),
            "properties": {
                "containers": {
                    "type": "array",
                    "maxItems": 16,
                    "items": _CONTAINER,
                    "description": "Containers of a rank pod; exactly one is named trainer.",
                },
                "volumes": {**_list_keeping(name=_NAME), "description": "Volumes, among them that of checkpoint.path."},
                "initContainers": {
                    **_list_keeping(name=_NAME, resources=_object_keeping(requests=_AMOUNTS, limits=_AMOUNTS)),
                    "maxItems": 64,
                    "description": "Containers that run before; Hajob's own come first.",
                },
                "serviceAccountName": {"type": "string", "maxLength": 253, "description": "Service account."},
                "affinity": {**_AFFINITY, "description": "Placement, which Hajob adds to."},
                "nodeSelector": {**_TEXTS, "description": "Labels that a node must have."},
                "tolerations": {
                    **_TOLERATIONS,
                    "description": "Taints that the pods bear; those of a lost node are added.",
                },
                "restartPolicy": {
                    "type": "string",
                    "enum": ["Never", "OnFailure", "Always"],
                    "description": "Never, or left out: Hajob restarts what fails.",
                },
                "schedulerName": {**_NAME, "description": "Scheduler of the rank pods."},
                "nodeName": {**_NAME, "description": "Refused: the pods of a job are on several nodes."},
                "schedulingGates": {**_LIST, "description": "Refused: nobody would open them."},
                "activeDeadlineSeconds": {
                    "type": "integer",
                    "format": "int64",
                    "description": "Refused: spec.activeDeadlineSeconds is the job's.",
                },
                "terminationGracePeriodSeconds": {
                    "type": "integer",
                    "format": "int64",
                    "description": "How long a rank pod may take to end, 1 to 3600; 10 when left out.",
                },
                "hostname": {**_NAME, "description": "Refused: all rank pods would have the same."},
                "hostnameOverride": {**_NAME, "description": "Refused: all rank pods would have the same."},
                "setHostnameAsFQDN": {"type": "boolean", "description": "Refused: the name is too long for a node."},
                "os": {**_object_keeping(name=_NAME), "description": "linux, or left out."},
                "hostNetwork": {"type": "boolean", "description": "Whether the pods use the node's network."},
            },
            "x-kubernetes-validations": [
                validation_rule("has(self.containers)", _MISSING_CONTAINERS),
                validation_rule(
                    f"!has(self.containers) || self.containers.exists_one(c, c.name == '{TRAINER_CONTAINER}')",
                    _ONE_TRAINER,
                    field=".containers",
                ),
            ],
        },
    },
}


def _same_field_rule(field: str, new: str, old: str) -> str:
    return f"has({new}.{field}) == has({old}.{field}) && (!has({new}.{field}) || {new}.{field} == {old}.{field})"


def _same_containers(new: str, old: str) -> str:
    parts = " && ".join(f"({_same_field_rule(field, 'c', 'o')})" for field in _KEPT_IN_CONTAINER)
    return (
        f"has({new}.containers) && has({old}.containers) && size({new}.containers) == size({old}.containers) && "
        f"{new}.containers.all(c, {old}.containers.exists(o, o.name == c.name && {parts}))"
    )


def _unchanged_but_for_placement() -> str:
    new, old = "self.template.spec", "oldSelf.template.spec"
    fields = " && ".join(f"({_same_field_rule(field, new, old)})" for field in _KEPT_IN_SPEC)
    return f"{fields} && {_same_containers(new, old)}"


TEMPLATE_UNCHANGED: Final = validation_rule(
    f"self.template == oldSelf.template || ((self.suspend || oldSelf.suspend) && {_unchanged_but_for_placement()})",
    "spec.template is fixed: only image, labels, annotations, nodeSelector and tolerations can be changed, and only "
    "while the job is suspended (set spec.suspend to true first, or in the same update as the change); for anything "
    "else delete the job and apply it again",
    field=".template",
)
"""Rule for the spec, which sees both the template and `suspend`.

A queue puts node selectors in and starts the job in one update, and takes them out in the one that suspends it (Kueue).
"""

PodTemplate = Annotated[Json, WithJsonSchema(TEMPLATE_SCHEMA)]

_HOOK_SCHEMA: Final[Json] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {**_METADATA, "description": "Labels and annotations of the pods."},
        "spec": {
            **_KEEP,
            "description": "PodSpec; node, tolerations, restartPolicy and activeDeadlineSeconds are set.",
            "required": ["containers"],
            "properties": {
                "containers": {
                    **_list_keeping(name=_NAME, image=_TEXT),
                    "maxItems": 16,
                    "minItems": 1,
                    "description": (
                        f"Containers; the verdict is the exit code of {HOOK_CONTAINER}, else of the first one."
                    ),
                },
            },
        },
    },
}
HookTemplate = Annotated[Json, WithJsonSchema(_HOOK_SCHEMA)]
