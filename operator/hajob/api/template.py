"""How much of the pod template the CRD declares.

The full PodSpec schema would be several hundred kB, would eat the budget of the rules and would age with every
Kubernetes release. So the template is kept as it is, and only what a rule must see is declared; the rest is judged
by the API server itself when the first pod is created as a dry run.

The list of containers is deliberately no list-map: two trainers should be refused with our sentence.
"""

from typing import Annotated, Final

from pydantic import WithJsonSchema

from hajob.api.base import Json, rule
from hajob.api.constants import TRAINER_CONTAINER

_KEEP: Final[Json] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_WORDS: Final[Json] = {"type": "array", "maxItems": 512, "items": {"type": "string", "maxLength": 65536}}

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
        "metadata": {**_KEEP, "description": "Labels and annotations of every rank pod."},
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
                }
            },
            "x-kubernetes-validations": [
                rule("has(self.containers)", _MISSING_CONTAINERS),
                rule(
                    f"!has(self.containers) || self.containers.exists_one(c, c.name == '{TRAINER_CONTAINER}')",
                    _ONE_TRAINER,
                    field=".containers",
                ),
            ],
        },
    },
}

PodTemplate = Annotated[Json, WithJsonSchema(TEMPLATE_SCHEMA)]
