"""A small operator's mind for tests: what order answers which fact."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.sidecar_jobs import Job


class InPlacePolicy:
    """Every dead process is started again in its own pod; a later death widens the order."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._order = pb.Order()
        job.operator.on_fact = self.take

    def take(self, fact: pb.Fact) -> None:
        """Answer an exit at once."""
        if fact.kind != pb.PROCESS_EXITED:
            return
        state = self._job.operator.state
        before_the_stop = state.conversation in ("Offline", "Serving")
        incarnation = state.incarnation + before_the_stop
        order = pb.Order(incarnation=incarnation, revision=1, action=pb.IN_PLACE)
        if self._order.incarnation == incarnation:
            order.CopyFrom(self._order)
            order.revision += 1
        order.lost_ranks.extend(rank for rank in fact.ranks if rank not in order.lost_ranks)
        order.restart_ranks.extend(rank for rank in fact.ranks if rank not in order.restart_ranks)
        self._order = order
        self._job.operator.order(order)
