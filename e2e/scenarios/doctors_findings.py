"""What `kubectl hajob doctor` finds of a rig's job."""

from __future__ import annotations

import json

from e2e.harness.fixtures import RunHajob
from e2e.harness.job import Job
from e2e.harness.rig import Rig


def findings_of_doctor(run_hajob: RunHajob, rig: Rig, job: Job, about: str = "") -> list[tuple[str, str]]:
    """Return grade and message of each finding about this, oldest first; an empty text: of all."""
    where = ("--operator-namespace", rig.namespace, "--fault-namespaces", rig.namespace, "-o", "json")
    _, said, _ = run_hajob("doctor", job, *where)
    return [(one["grade"], one["message"]) for one in json.loads(said)["findings"] if about in one["about"]]
