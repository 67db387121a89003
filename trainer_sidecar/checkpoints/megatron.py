"""PyTorch's layout, as Megatron and MindSpeed-LLM write it (docs/checkpoints.md, "PyTorch").

`iter_NNNNNNN/mp_rank_TT[_PPP][_EEE]/` holds `model_optim_rng.pt` and, with a sharded optimizer, `distrib_optim.pt`. The
commit mark is `latest_checkpointed_iteration.txt`, written last; MindIO's last checkpoint stands in a directory that
ends in `_tmp` until then. One file holds the optimizer of a whole data-parallel group, so nothing can be filled in.
What is committed in another format (no `mp_rank` directory) is not judged: refusing what is not understood costs more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from hajob.domain.checkpoints import Reason, Refusal
from hajob.domain.layout import Layout, Sharding
from trainer_sidecar.checkpoints.verdict import Directory, Verdict, refuse, shown

TRACKER: Final = "latest_checkpointed_iteration.txt"
MODEL_FILE: Final = "model_optim_rng.pt"
OPTIMIZER_FILE: Final = "distrib_optim.pt"
RELEASE: Final = "release"
"""A checkpoint to begin from: weights only, of no step."""
_SHARD: Final = "mp_rank_"
_CANDIDATE: Final = re.compile(r"iter_(\d{7,})(_tmp)?")


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    step: int
    temporary: bool = False
    files: frozenset[str] = field(default_factory=frozenset)  # below the candidate


@dataclass(frozen=True, slots=True)
class _Tracker:
    """What the commit mark says: a step, `release`, or nothing that can be used."""

    text: str | None
    step: int | None

    @property
    def lost(self) -> bool:
        """It is there and says nothing: whoever wrote it had saved everything before."""
        return self.text is not None and self.step is None and self.text != RELEASE


def judge(directory: Directory, layout: Layout) -> Verdict:
    """The newest complete checkpoint in `directory` for a job of this layout."""
    tracker, candidates = _read_tracker(directory), _candidates(directory)
    if tracker.text == RELEASE:
        return _release(directory, layout)
    refused = [] if _tracker_fits(tracker, candidates) else [_wrong_tracker(tracker)]
    with_optimizer = layout.sharding is Sharding.DISTRIBUTED and _saves_optimizer(candidates)
    for candidate in candidates:
        found = _refusal(directory, layout, candidate, tracker, with_optimizer=with_optimizer)
        if found is None:
            writes = {} if tracker.step == candidate.step else {TRACKER: str(candidate.step)}
            return Verdict(candidate.name, candidate.step, tuple(refused), writes=writes)
        refused.append(found)
    return Verdict(refused=tuple(refused), aside=() if tracker.text is None else (TRACKER,))


def shard_directories(layout: Layout) -> Iterator[str]:
    """Names of the directories of one checkpoint: those of the ranks that write, first in a dense or an expert group.

    A name is made of the rank's dense tensor coordinate, its stage and its expert coordinate. With an expert tensor
    size of its own the three are coupled, and not every combination exists (docs/checkpoints.md, "PyTorch").
    """
    names: dict[str, None] = {}
    for rank in _writers(layout):
        at = layout.coordinates(rank)
        stage = f"_{at.pipeline:03d}" if layout.pipeline > 1 else ""
        part = f"_{layout.expert_rank(rank):03d}" if layout.expert > 1 else ""
        names[f"{_SHARD}{at.tensor:02d}{stage}{part}"] = None
    yield from sorted(names)


def _writers(layout: Layout) -> Iterator[int]:
    """Ranks that are the first of their dense group, or of their expert group."""
    for key in range(layout.tensor * layout.pipeline):
        yield layout.group(key)[0]
    if layout.expert > 1:
        for run in layout.ranks_at_expert_position(0):
            yield from run


def _read_tracker(directory: Directory) -> _Tracker:
    text = directory.text(TRACKER)
    stripped = text.strip() if text is not None else None
    number = stripped is not None and stripped.isdecimal() and stripped.isascii() and len(stripped) <= 15
    if text is None and TRACKER in directory.files():
        stripped = ""  # there, but no text
    return _Tracker(stripped, int(stripped or 0) if number else None)


def _candidates(directory: Directory) -> list[_Candidate]:
    """Newest first; of one step the finished one before the temporary one."""
    below: dict[str, set[str]] = {}
    for path in directory.files():
        name, slash, rest = path.partition("/")
        if slash and _CANDIDATE.fullmatch(name):
            below.setdefault(name, set()).add(rest)
    found = []
    for name, files in below.items():
        match = _CANDIDATE.fullmatch(name)
        assert match is not None
        found.append(_Candidate(name, int(match[1]), match[2] is not None, frozenset(files)))
    return sorted(found, key=lambda one: (one.step, not one.temporary), reverse=True)


def _tracker_fits(tracker: _Tracker, candidates: list[_Candidate]) -> bool:
    if tracker.text is None:
        return True
    return any(one.step == tracker.step and not one.temporary for one in candidates)


def _wrong_tracker(tracker: _Tracker) -> Refusal:
    what = f"step {tracker.step}, which is not there" if tracker.step is not None else f"{(tracker.text or '')[:40]!r}"
    return refuse(TRACKER, Reason.WRONG_TRACKER, f"it says {what}")


def _saves_optimizer(candidates: list[_Candidate]) -> bool:
    """A training that never saves its optimizer (--no-save-optim) is not told to."""
    return any(file.endswith(f"/{OPTIMIZER_FILE}") for one in candidates for file in one.files)


def _refusal(
    directory: Directory, layout: Layout, candidate: _Candidate, tracker: _Tracker, *, with_optimizer: bool
) -> Refusal | None:
    name = candidate.name
    if candidate.temporary:
        return refuse(name, Reason.TEMPORARY_LEFT_BEHIND)
    committed = tracker.lost or (tracker.step is not None and candidate.step <= tracker.step)
    if not committed:
        newest = "none" if tracker.step is None else f"step {tracker.step}"
        return refuse(name, Reason.NOT_COMMITTED, f"the newest that was committed is {newest}")
    return _incomplete(directory, layout, candidate, with_optimizer=with_optimizer)


def _incomplete(directory: Directory, layout: Layout, candidate: _Candidate, *, with_optimizer: bool) -> Refusal | None:
    if not any(file.startswith(_SHARD) for file in candidate.files):
        return None
    wanted = (MODEL_FILE, OPTIMIZER_FILE) if with_optimizer else (MODEL_FILE,)
    paths = [f"{shard}/{file}" for shard in shard_directories(layout) for file in wanted]
    if missing := [path for path in paths if path not in candidate.files]:
        return refuse(candidate.name, Reason.MISSING_SHARD, shown(missing))
    sizes, steps = directory.files(), dict[int, str]()
    for path in paths:
        whole_path = f"{candidate.name}/{path}"
        look = directory.look(whole_path) if sizes[whole_path] else None
        if look is None or not look.whole:
            return refuse(candidate.name, Reason.TRUNCATED_FILE, f"{path} ({sizes[whole_path]} bytes)")
        if look.step is not None:
            steps.setdefault(look.step, path)
    if wrong := {step: path for step, path in steps.items() if step != candidate.step}:
        step, path = next(iter(wrong.items()))
        return refuse(candidate.name, Reason.MIXED_STEPS, f"{path} was saved at step {step}")
    return None


def _release(directory: Directory, layout: Layout) -> Verdict:
    """Weights to begin from: what is there is there, nobody has saved anything since."""
    files = directory.files()
    missing = [one for one in shard_directories(layout) if f"{RELEASE}/{one}/{MODEL_FILE}" not in files]
    if missing:  # the training says so itself; beginning without any weights would be worse
        return Verdict(refused=(refuse(RELEASE, Reason.MISSING_SHARD, shown(missing)),))
    return Verdict(RELEASE, 0)
