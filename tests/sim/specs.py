"""The specs that histories play: the smallest one, and what a user may set beside it, at the borders of its values."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

import yaml

from e2e.bootstrap.paths import CHECKOUT
from hajob.api.base import Json

QUICKSTART: Final[Json] = yaml.safe_load((CHECKOUT / "examples/quickstart.yaml").read_text())
SMALLEST_SHARE: Final = 0.5
"""Of the histories play the smallest job with nothing but defaults: it is what most users have."""
MOST_FIELDS: Final = 4
"""So many fields are set beside the smallest job: a history that fails is to be read by a person."""

VALUES: Final[dict[str, dict[str, tuple[Any, ...]]]] = {
    "": {
        "startupDeadlineSeconds": (1, 60, 300),
        "finishTimeoutSeconds": (1, 5, 60),
        "activeDeadlineSeconds": (1, 300, 3000),
        "restartCheckpointPolicy": ("Required",),
    },
    "scheduling": {
        "gangPolicy": ("None",),
        "numSpareNodes": (1, 2, 9),
        "spareMode": ("Warm",),
        "capacityTimeoutSeconds": (1, 60, 600),
        "waitingPodPolicy": ("Release",),
    },
    "recovery": {
        "maxProgramFailures": (0, 1, 1_000_000),
        "replacementTimeoutSeconds": (1, 20, 3480),
        "subHealthPolicy": ("Ignore", "Checkpoint", "Evict"),
        "cordonPolicy": ("Ignore",),
        "drainTimeoutSeconds": (0, 60),
        "coordinatorLossPolicy": ("Immediately", "Never"),
        "hang": ({"stepTimeMultiple": 2, "minTimeoutSeconds": 1}, {"stepTimeMultiple": 10_000}),
    },
    "elastic": {
        "policy": ("Disabled",),
        "minDataParallel": (3, 4),
        "shrunkPodPolicy": ("Release",),
        "expandDelaySeconds": (0, 600),
        "restartSize": ("Available", "Available"),
    },
}
"""Section of the spec to its fields, and what a history may set each to; what is left out is the default."""
ACTIONS: Final = ("Retry", "InPlace", "Replace", "Shrink", "Checkpoint", "Restart")
LIMITS: Final = ({"maxCount": 0}, {"maxCount": 1}, {"deadlineSeconds": 1}, {"windowSeconds": 1})


def draw_settings(chance: random.Random) -> Json:
    """Return what a user may set, or edit, of a spec: some fields, as JSON to merge."""
    made: Json = {}
    for _ in range(chance.randint(1, MOST_FIELDS)):
        if chance.random() < 0.25:
            limited = chance.sample(ACTIONS, chance.randint(1, 3))
            made.setdefault("recovery", {})["actions"] = [{"name": one, **chance.choice(LIMITS)} for one in limited]
            continue
        section = chance.choice(sorted(VALUES))
        field = chance.choice(sorted(VALUES[section]))
        place = made.setdefault(section, {}) if section else made
        place[field] = chance.choice(VALUES[section][field])
    return made


def draw_job(chance: random.Random) -> Json:
    """Return the job of a history."""
    job: Json = copy.deepcopy(QUICKSTART)
    if chance.random() < SMALLEST_SHARE:
        return job
    for field, value in draw_settings(chance).items():
        job["spec"][field] = {**job["spec"].get(field, {}), **value} if isinstance(value, dict) else value
    return job


def settings_of_job(job: Json) -> Json:
    """Return what a job sets beside the smallest one."""
    spec: Json = job["spec"]
    return {field: value for field, value in spec.items() if value != QUICKSTART["spec"].get(field)}
