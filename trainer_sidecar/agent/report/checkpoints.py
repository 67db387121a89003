"""Look at the job's checkpoints when the coordinator asks this agent to (docs/user/checkpoints.md).

A volume that all ranks share may be slow, or hang: every look runs in a thread, one at a time, and nothing else of the
agent waits for it. The result is a level: the agent reports it as often as the coordinator asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from hajob.domain.checkpoints import MOST_REFUSALS
from hajob.domain.layout import Layout, RankOrder, Sharding
from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar import access
from trainer_sidecar.agent.report.volume import full_volume_problems
from trainer_sidecar.checkpoints import megatron, mindspore_forms
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.verdict import Verdict

# Between two looks at the times of the directory and its trackers, four `stat`s at most.
LOOK_SECONDS = 0.5
SLOW_LOOK_SECONDS = 60.0
"""Between two looks where nothing tells of a new checkpoint: MindSpore may have a directory for each rank."""
MOST_SKIPPED = round(SLOW_LOOK_SECONDS / LOOK_SECONDS)
LOOKS_AT_VOLUME = round(10.0 / LOOK_SECONDS)
"""One look in so many asks how full the volume is: a save that fills it takes longer than that."""
MINDSPORE = "MindSpore"
NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)

log = logging.getLogger(__name__)


class Checkpoints:
    """The directory of checkpoints as this agent sees it.

    `tell` is called with every new state, and with what is wrong with the volume; `carry_out` does what a verdict asks
    for, or raises OSError. `directory` is None where no volume of this pod holds it.
    """

    def __init__(
        self,
        directory: Path | None,
        tell: Callable[[pb.CheckpointState, Sequence[pb.Problem]], None],
        carry_out: Callable[[Verdict], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._tell = tell
        self._carry_out = carry_out
        self._order: pb.CheckpointOrder | None = None
        self._wake = asyncio.Event()
        self._state = pb.CheckpointState(step=-1, loaded_step=-1)
        self._seen: object = None
        self._skipped = 0
        self._problems: list[pb.Problem] = []
        self._looks = 0

    def apply_order(self, order: pb.CheckpointOrder | None) -> None:
        """Take the coordinator's order; None: it asks another agent, or none."""
        if order != self._order:
            self._order = order
            self._seen = None
            self._wake.set()

    async def look_for_ever(self) -> None:
        """Look as often as ordered, for ever."""
        while True:
            self._wake.clear()
            order = self._order
            if order is not None and self._directory is not None:
                await self._look_once(self._directory, order)
            await self._look_at_volume(self._directory if order is not None else None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if order is not None else None):
                    await self._wake.wait()

    async def _look_once(self, directory: Path, order: pb.CheckpointOrder) -> None:
        prepares = order.prepare_attempt > self._state.attempt
        try:
            if not prepares and await asyncio.to_thread(self._is_directory_unchanged, directory):
                return
            if prepares:
                state = await self._prepare_attempt(directory, order)
            else:
                state = await asyncio.to_thread(look_at_checkpoints, directory, order, self._state)
        except Exception as error:  # whatever is on that volume, the ranks of this pod are not to suffer
            self._seen = None
            state = pb.CheckpointState()
            state.CopyFrom(self._state)
            why = access.describe_refusal(directory, error) if isinstance(error, PermissionError) else str(error)
            state.problem = f"the checkpoints at {directory} cannot be verified: {why}"
            if state.problem != self._state.problem:
                log.exception("%s; trying again", state.problem)
        if state != self._state:
            self._state = state
            self._tell(state, self._problems)

    async def _look_at_volume(self, directory: Path | None) -> None:
        """Tell whether the volume is full; None: another agent looks, or none."""
        problems: list[pb.Problem] = []
        if directory is None:
            self._looks = 0
        else:
            self._looks += 1
            if self._looks % LOOKS_AT_VOLUME != 1:
                return
            problems = await asyncio.to_thread(full_volume_problems, directory)
        if problems != self._problems:
            self._problems = problems
            self._tell(self._state, problems)

    async def _prepare_attempt(self, directory: Path, order: pb.CheckpointOrder) -> pb.CheckpointState:
        """Correct what the next attempt will load, before any of its ranks runs. OSError: not possible yet.

        The training could not have written files that its user may not change: it starts all the same.
        """
        state, verdict = await asyncio.to_thread(prepare_attempt, directory, order)
        try:
            await self._carry_out(verdict)
        except OSError as error:
            if error.errno not in NOT_ALLOWED:
                raise
            problem = f"the checkpoints at {directory} are not set right: {error.strerror}"
            log.warning("%s", problem)
            return pb.CheckpointState(attempt=order.prepare_attempt, step=-1, loaded_step=-1, problem=problem)
        log.info("attempt %d loads %s", order.prepare_attempt, verdict.name or "no checkpoint")
        return state

    def _is_directory_unchanged(self, directory: Path) -> bool:
        """Whether nothing was saved since the last look, as far as the top of the directory shows."""
        within = directory / mindspore_forms.INNER
        seen = tuple(
            _modification_time(path) for path in (directory, directory / megatron.TRACKER, within / megatron.TRACKER)
        )
        is_told = self._order is not None and self._order.rules.framework != MINDSPORE
        self._skipped += 1
        if seen == self._seen and (is_told or self._skipped < MOST_SKIPPED):
            return True
        self._seen, self._skipped = seen, 0
        return False


def prepare_attempt(directory: Path, order: pb.CheckpointOrder) -> tuple[pb.CheckpointState, Verdict]:
    """Return the state after the verdict on what the next attempt loads is carried out, and the verdict.

    What this agent may not read it cannot evaluate, and refuses nothing: the job starts as it would without it.
    """
    unverified = pb.CheckpointState(attempt=order.prepare_attempt, step=-1, loaded_step=-1)
    try:
        verdict = evaluate_directory(directory, order.rules)
    except (PermissionError, TimeoutError) as error:
        why = (
            access.describe_refusal(directory, error)
            if isinstance(error, PermissionError)
            else f"the volume is too slow: {error}"
        )
        unverified.problem = f"the checkpoints at {directory} are not verified: {why}"
        log.warning("%s", unverified.problem)
        return unverified, Verdict()
    if verdict.doubt:
        log.warning("the checkpoints at %s are not verified: %s", directory, verdict.doubt)
        unverified.problem = _describe_doubt(verdict)
        return unverified, Verdict()
    for refusal in verdict.refused:
        log.warning("checkpoint %s is refused: %s", refusal.name, refusal.refusal_message)
    refused = [
        pb.RefusedCheckpoint(name=one.name, reason=one.reason, detail=one.detail)
        for one in verdict.refused[:MOST_REFUSALS]
    ]
    told = pb.CheckpointState(
        attempt=order.prepare_attempt,
        name=verdict.name,
        step=verdict.step,
        tracked=True,
        refused=refused,
        num_refused=len(verdict.refused),
        loaded_step=verdict.step,
    )
    return told, verdict


def look_at_checkpoints(directory: Path, order: pb.CheckpointOrder, before: pb.CheckpointState) -> pb.CheckpointState:
    """Return what a training that loads now would find; keep what the attempt was given."""
    verdict = evaluate_directory(directory, order.rules)
    state = pb.CheckpointState()
    state.CopyFrom(before)
    state.name, state.step, state.tracked = verdict.name, verdict.step, verdict.is_tracked
    state.problem = _describe_doubt(verdict) if verdict.doubt else ""
    return state


def _describe_doubt(verdict: Verdict) -> str:
    """Describe for people what does not fit, and what follows."""
    return (
        f"{verdict.doubt}; nothing is refused or renamed, and the training loads what its tracker names. Compare "
        "spec.parallelism with the arguments of the training"
    )


def evaluate_directory(directory: Path, rules: pb.CheckpointRules) -> Verdict:
    """Return the verdict by the layout of the job's framework. ValueError: the sizes make no job."""
    layout = Layout(
        num_nodes=rules.num_nodes,
        chips_per_node=rules.chips_per_node,
        tensor=rules.tensor,
        pipeline=rules.pipeline,
        context=rules.context,
        expert=rules.expert,
        rank_order=RankOrder(rules.rank_order),
        sharding=Sharding(rules.sharding),
        copies=rules.copies,
        expert_tensor=rules.expert_tensor,
    )
    rule = mindspore_forms.evaluate_all_forms if rules.framework == MINDSPORE else megatron.evaluate_megatron
    found = Directory(directory)
    verdict = rule(found, layout, frozenset(rules.passed_over))
    if verdict.step < 0 and rules.passed_over:  # nothing else is left, and starting over in silence would be worse
        return rule(Directory(directory), layout)
    return verdict


def _modification_time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
