"""The work of a job's planned pauses: creates its pods, evaluates how they end, quarantines bad nodes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from hajob.api import constants as names
from hajob.api.base import Json, format_time
from hajob.api.quarantine import BY_HAND
from hajob.faults.node_quarantine import node_quarantine
from hajob.job.admission import pause_refusal
from hajob.job.memory import JobMemory
from hajob.job.places import JobPlaces
from hajob.job.pod_reconciler import PodReconciler
from hajob.job.ports import Ports
from hajob.kube.client import ALREADY_EXISTS, ApiError
from hajob.plan import events
from hajob.pods.hook_pod import hook_pod
from hajob.sources import observe, pause
from hajob.sources.pod import PodView

log = logging.getLogger(__name__)


class PauseWork:
    """The work of the pauses of one job.

    Args:
        memory: of the job.
        places: of the job.
        ports: to the world.
        reconciler: deletes pods.
        wake: called when `look` is due.
    """

    def __init__(
        self,
        memory: JobMemory,
        places: JobPlaces,
        ports: Ports,
        reconciler: PodReconciler,
        wake: Callable[[], None],
    ) -> None:
        self._memory, self._places, self._ports, self._reconciler = memory, places, ports, reconciler
        self._wake, self._refused = wake, ""
        self._asked: tuple[str, str] = ("", "")

    async def ask(self) -> None:
        """Ask the server, once for each request, for a pod of the work: no training is held for one that cannot be.

        Raises:
            ApiError: the server could not be asked; the caller tries again.
        """
        job, state = self._memory.job, self._memory.state
        request = pause.request_of(job.spec.pause)
        if request and request not in {state.pause_seen, self._asked[0]}:
            self._asked = (request, await pause_refusal(self._ports.kube, job))

    def look(self) -> tuple[events.JobEvent, ...]:
        """Return events of the pause that the spec requests, and of work that has ended."""
        memory = self._memory
        if memory.job.spec.pause is None and not memory.state.holds_still:
            return ()
        spec, asked = memory.job.spec, observe.restart_asked(memory.job.spec)
        restart = bool(asked) and asked != memory.journal.restart_seen
        serving, hooks, now = self._places.serving(), self._hooks(), memory.time.now()
        return tuple(
            pause.of_pause(memory.state, spec, serving, hooks, self._why_not(), restart_asked=restart, now_ms=now)
        )

    def _why_not(self) -> str:
        if self._memory.state.holds_still:
            return self._refused
        request, refusal = self._asked
        return refusal if request == pause.request_of(self._memory.job.spec.pause) else ""

    async def reconcile(self) -> None:
        """Create the pods of an open pause, delete those of a closed one; pods that have ended stay, for their logs.

        Raises:
            ApiError: the server cannot be reached; the caller tries again.
        """
        for hook in self._hooks().values():
            await self._isolate(hook)
        open_one = self._memory.state.holds_still
        for pod in self._places.pods.all():
            old = pod.incarnation < self._incarnation if open_one else not pod.ended
            if pod.is_hook and old and not pod.deleting:
                await self._reconciler.delete(pod)
        if open_one:
            await self._make()
        else:
            self._refused = ""

    @property
    def _incarnation(self) -> int:
        incident = self._memory.state.incident
        return incident.incarnation if incident is not None else 0

    def _hooks(self) -> dict[int, PodView]:
        """Return the pods of the newest pause by node rank."""
        hooks = [pod for pod in self._places.pods.all() if pod.is_hook]
        newest = max((pod.incarnation for pod in hooks), default=0)
        if self._memory.state.holds_still and newest < self._incarnation:
            return {}
        return {pod.node_rank: pod for pod in hooks if pod.incarnation == newest}

    async def _make(self) -> None:
        job, asked, hooks = self._memory.job, self._memory.job.spec.pause, self._hooks()
        if asked is None or asked.template is None:
            return
        for rank, node in pause.nodes_of_work(asked, self._places.serving()).items():
            if rank in hooks or self._refused:
                continue
            try:
                made = hook_pod(job, rank, node, self._incarnation)
                await self._ports.kube.create("pods", job.metadata.namespace, made)
            except ApiError as error:
                if not error.status:
                    raise
                if error.reason != ALREADY_EXISTS:
                    self._refused = f"no pod of the work is made on {node}: {error.message}"
                    log.warning("%s: %s", self._memory.title, self._refused)
                    self._wake()

    async def _isolate(self, hook: PodView) -> None:
        """Quarantine a node that was found bad, while the pause handles it: afterwards an admin's decision counts."""
        incident = self._memory.state.incident
        if not pause.is_bad(hook) or incident is None or pause.fact_id(hook) not in incident.fact_ids:
            return
        if hook.node_name in self._ports.quarantined():
            return
        try:
            await self._ports.kube.create(names.QUARANTINES, "", self._quarantine(hook))
        except ApiError as error:
            if not error.status:
                raise
            log.log(
                logging.INFO if error.reason == ALREADY_EXISTS else logging.WARNING,
                "%s: %s is not quarantined: %s",
                self._memory.title,
                hook.node_name,
                error,
            )

    def _quarantine(self, hook: PodView) -> Json:
        node = self._ports.nodes().get(hook.node_name)
        began = datetime.fromtimestamp(self._ports.clock.now_milliseconds() // 1000, UTC)
        spec = {
            "nodeName": hook.node_name,
            "source": BY_HAND,
            "reason": pause.CODE,
            "message": f"pod {hook.namespace}/{hook.name} of a planned pause ended with exit code {pause.NODE_IS_BAD}",
            "startTime": format_time(began),
        }
        return node_quarantine(spec, node.uid if node else "")
