"""What keeps MindIO from protecting this job and does not pass by itself: of the image, the settings, the trainer.

A level like everything that goes up: it is in every report for as long as it is so. One sentence for each kind, because
what is wrong with one rank's image or settings is wrong with all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.controller_protocol import PACKAGE
from trainer_sidecar.coordinator.state.job import Job
from trainer_sidecar.coordinator.state.leases import SECOND_LOOK_SECONDS

IMAGE_UNUSABLE = "ImageUnusable"
AGENTS_UNREACHABLE = "AgentsUnreachable"
CERTAIN_STARTS = 2
"""What an image lacks it lacks every time; the first failure may have been a disk that was slow."""


def protection_problems(job: Job) -> Iterable[pb.Problem]:
    """Return what is wrong now, each kind once; of several pods the lowest node rank speaks."""
    found: dict[str, pb.Problem] = {}
    controller = job.controller
    if controller.has_failed and controller.kind == PACKAGE and controller.starts >= CERTAIN_STARTS:
        found[IMAGE_UNUSABLE] = pb.Problem(code=IMAGE_UNUSABLE, message=controller.problem)
    if job.contacts.unreachable is not None:
        silent, agents = job.contacts.unreachable
        text = (
            f"{silent} of {agents} agents fell silent at once: the network of this coordinator's own pod or node, most "
            f"likely; they count as lost when they are still silent {SECOND_LOOK_SECONDS:.0f} s later"
        )
        found[AGENTS_UNREACHABLE] = pb.Problem(code=AGENTS_UNREACHABLE, message=text)
    for pod in sorted(job.roster.pods.values(), key=lambda pod: pod.node_rank):
        if pod.is_current:
            for problem in pod.problems:
                found.setdefault(problem.code, problem)
    return found.values()
