"""PyTorch's layout, as Megatron and MindSpeed-LLM write it (docs/user/checkpoints.md, "PyTorch").

`iter_NNNNNNN/mp_rank_TT[_PPP][_EEE]/` holds `model_optim_rng.pt` and, with a sharded optimizer, `distrib_optim.pt`. The
commit mark is `latest_checkpointed_iteration.txt`, written last; MindIO's last checkpoint stands in a directory that
ends in `_tmp` until then. One file holds the optimizer of a whole data-parallel group, so nothing can be filled in.
What is committed in another format (no `mp_rank` directory) is not checked: refusing what is not understood costs more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from hajob.domain.checkpoints import CheckpointRefusal, RefusalReason
from hajob.domain.layout import Layout, Sharding
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.verdict import Verdict, refuse_checkpoint, show_first_names, step_in_tracker

TRACKER: Final = "latest_checkpointed_iteration.txt"
MODEL_FILE: Final = "model_optim_rng.pt"
OPTIMIZER_FILE: Final = "distrib_optim.pt"
RELEASE: Final = "release"
"""A checkpoint to start from: weights only, without a step."""
_SHARD: Final = "mp_rank_"
_CANDIDATE: Final = re.compile(r"iter_(\d{7,})(_tmp)?")


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    step: int
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class _Tracker:
    """The commit mark's content: a step, `release`, or nothing usable."""

    text: str | None
    step: int | None

    @property
    def is_unusable(self) -> bool:
        """Whether it exists and says nothing: its writer had saved everything before."""
        return self.text is not None and self.step is None and self.text != RELEASE

    def is_committed(self, candidate: _Candidate) -> bool:
        """Return whether a finished directory was complete when it was saved, by this mark."""
        return self.is_unusable or (self.step is not None and candidate.step <= self.step)


def evaluate_megatron(directory: Directory, layout: Layout, passed_over: Collection[int] = ()) -> Verdict:
    """Return the verdict on the newest complete checkpoint in `directory` for a job of this layout."""
    tracker, candidates = _read_tracker(directory), _candidates_newest_first(directory)
    if tracker.text == RELEASE:
        return _evaluate_release(directory, layout)
    refused = [] if _names_a_candidate(tracker, candidates) else [_refusal_of_tracker(tracker)]
    with_optimizer = layout.sharding is Sharding.DISTRIBUTED and _saves_optimizer(directory, candidates)
    incomplete = []
    for candidate in candidates:
        found = _refusal_of_uncommitted(candidate, tracker)
        if found is None:
            found = _refusal_of_incomplete(directory, layout, candidate, with_optimizer=with_optimizer)
            if found is None and candidate.step in passed_over:
                refused.append(refuse_checkpoint(candidate.name, RefusalReason.LOAD_FAILED))
                continue
            if found is None:
                writes = {} if tracker.step == candidate.step else {TRACKER: str(candidate.step)}
                return Verdict(candidate.name, candidate.step, tuple(refused), writes=writes)
            incomplete.append(found)
        refused.append(found)
    if incomplete and {one.reason for one in incomplete} == {RefusalReason.MISSING_SHARD}:
        return Verdict(doubt=f"every saved checkpoint lacks what this layout should have: {incomplete[0].detail}")
    return Verdict(refused=tuple(refused), aside=() if tracker.text is None else (TRACKER,))


def shard_directories(layout: Layout) -> Iterator[str]:
    """Return the directories of one checkpoint: those of the ranks that write, first in a dense or an expert group.

    A name is made of the rank's dense tensor coordinate, its stage and its expert coordinate. With an expert tensor
    size of its own the three are coupled, and not every combination exists (docs/user/checkpoints.md, "PyTorch").
    """
    names: dict[str, None] = {}
    for rank in _ranks_that_write(layout):
        at = layout.coordinates(rank)
        stage = f"_{at.pipeline:03d}" if layout.pipeline > 1 else ""
        part = f"_{layout.expert_rank(rank):03d}" if layout.expert > 1 else ""
        names[f"{_SHARD}{at.tensor:02d}{stage}{part}"] = None
    yield from sorted(names)


def _ranks_that_write(layout: Layout) -> Iterator[int]:
    """Return the ranks that are the first of their dense group, or of their expert group."""
    for key in range(layout.tensor * layout.pipeline):
        yield layout.ranks_of_group(key)[0]
    if layout.expert > 1:
        for run in layout.ranks_at_expert_position(0):
            yield from run


def _read_tracker(directory: Directory) -> _Tracker:
    text = directory.text_of_file(TRACKER)
    stripped = text.strip() if text is not None else None
    if text is None and TRACKER in directory.top_level_names():
        stripped = ""  # there, but no text
    return _Tracker(stripped, step_in_tracker(text))


def _candidates_newest_first(directory: Directory) -> list[_Candidate]:
    """Return the candidates newest first; of one step the finished one before the temporary one."""
    matches = ((name, _CANDIDATE.fullmatch(name)) for name in directory.top_level_names())
    found = [_Candidate(name, int(match[1]), match[2] is not None) for name, match in matches if match is not None]
    return sorted(found, key=lambda one: (one.step, not one.temporary), reverse=True)


def _names_a_candidate(tracker: _Tracker, candidates: list[_Candidate]) -> bool:
    if tracker.text is None:
        return True
    return any(one.step == tracker.step and not one.temporary for one in candidates)


def _refusal_of_tracker(tracker: _Tracker) -> CheckpointRefusal:
    what = f"step {tracker.step}, which is not there" if tracker.step is not None else f"{(tracker.text or '')[:40]!r}"
    return refuse_checkpoint(TRACKER, RefusalReason.WRONG_TRACKER, f"it says {what}")


def _saves_optimizer(directory: Directory, candidates: list[_Candidate]) -> bool:
    """Whether the training saves its optimizer (not with --no-save-optim), as its newest checkpoint with it shows."""
    return any(file.endswith(f"/{OPTIMIZER_FILE}") for one in candidates for file in directory.sizes_below(one.name))


def _refusal_of_uncommitted(candidate: _Candidate, tracker: _Tracker) -> CheckpointRefusal | None:
    if candidate.temporary:
        return refuse_checkpoint(candidate.name, RefusalReason.TEMPORARY_LEFT_BEHIND)
    if tracker.is_committed(candidate):
        return None
    newest = "none" if tracker.step is None else f"step {tracker.step}"
    return refuse_checkpoint(candidate.name, RefusalReason.NOT_COMMITTED, f"the newest that was committed is {newest}")


def _refusal_of_incomplete(
    directory: Directory, layout: Layout, candidate: _Candidate, *, with_optimizer: bool
) -> CheckpointRefusal | None:
    name, sizes = candidate.name, directory.sizes_below(candidate.name)
    if not any(file.startswith(f"{name}/{_SHARD}") for file in sizes):
        return None
    wanted = (MODEL_FILE, OPTIMIZER_FILE) if with_optimizer else (MODEL_FILE,)
    paths = [f"{name}/{shard}/{file}" for shard in shard_directories(layout) for file in wanted]
    if missing := [path.removeprefix(f"{name}/") for path in paths if path not in sizes]:
        return refuse_checkpoint(name, RefusalReason.MISSING_SHARD, show_first_names(missing))
    for path in paths:
        if not sizes[path]:
            return refuse_checkpoint(name, RefusalReason.TRUNCATED_FILE, f"{path.removeprefix(f'{name}/')} (0 bytes)")
    for path, look in directory.look_into_files(paths):
        short = path.removeprefix(f"{name}/")
        if not look.whole:
            return refuse_checkpoint(name, RefusalReason.TRUNCATED_FILE, f"{short} ({sizes[path]} bytes)")
        if look.step not in {None, candidate.step}:
            return refuse_checkpoint(name, RefusalReason.MIXED_STEPS, f"{short} was saved at step {look.step}")
    return None


def _evaluate_release(directory: Directory, layout: Layout) -> Verdict:
    """Return the verdict on weights to start from: no training has saved anything since."""
    files = directory.sizes_below(RELEASE)
    missing = [one for one in shard_directories(layout) if f"{RELEASE}/{one}/{MODEL_FILE}" not in files]
    if missing:  # the training reports it itself; starting without any weights would be worse
        return Verdict(refused=(refuse_checkpoint(RELEASE, RefusalReason.MISSING_SHARD, show_first_names(missing)),))
    return Verdict(RELEASE, 0)
