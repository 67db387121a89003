"""MindFormers' newer layout (`use_legacy_format: False`), a directory a step (docs/user/checkpoints.md, "MindSpore").

`[checkpoint/]iteration_NNNNNNNN/` holds `[prefix-]model-IIIIIII-TTTTTTT.safetensors`, with the optimizer saved also
`…opt-…`: file I of T; `common.json` with the step, and `metadata.json`, which says which file holds what. The commit
mark is `latest_checkpointed_iteration.txt` beside the directories, written last, and a training that loads takes what
it names. All files are needed: MindFormers looks for each before it loads, so nothing is filled from another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from hajob.domain.checkpoints import CheckpointRefusal, RefusalReason
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.verdict import Verdict, refuse_checkpoint, show_first_names, step_in_tracker

TRACKER: Final = "latest_checkpointed_iteration.txt"
COMMON: Final = "common.json"
METADATA: Final = "metadata.json"
MODEL: Final = "model"
_PATH: Final = re.compile(r"(?P<name>(?:checkpoint/)?iteration_(?P<step>\d{8,15}))/(?P<file>[^/]+)")
_TRACKER: Final = re.compile(rf"(?:checkpoint/)?{re.escape(TRACKER)}")
_SHARD: Final = re.compile(r"(?P<kind>(?:.+-)?(?P<what>model|opt))-(?P<index>\d{7})-(?P<total>\d{7})\.safetensors")
_DOCUMENTS: Final = frozenset({COMMON, METADATA})
_LARGEST: Final = 1 << 20
"""A larger document is not read, and the file names in it are not compared."""


@dataclass(slots=True)
class _Iteration:
    """The content of one directory."""

    name: str
    step: int
    sizes: dict[str, int] = field(default_factory=dict)

    def kinds_of_files(self) -> set[str]:
        """Return `model` and `opt`, each with the prefix of its file names."""
        return {match["kind"] for match in map(_SHARD.fullmatch, self.sizes) if match is not None}

    def wanted_file_names(self, kind: str) -> Iterator[str]:
        """Return the names of all files of a kind, by the total that the existing ones give."""
        found = (match for match in map(_SHARD.fullmatch, self.sizes) if match is not None and match["kind"] == kind)
        for total in sorted({int(match["total"]) for match in found}):
            yield from (f"{kind}-{index:07d}-{total:07d}.safetensors" for index in range(total))


def evaluate_iterations(directory: Directory, passed_over: Collection[int] = ()) -> Verdict | None:
    """Return the verdict on the newest complete checkpoint of this layout; None: the directory has none of it."""
    candidates = _iterations_newest_first(directory)
    trackers = [path for path in directory.sizes_of_files() if _TRACKER.fullmatch(path)]
    if not candidates:
        return None  # the tracker alone is also Megatron's
    tracker = trackers[0] if trackers else f"{candidates[0].name.rpartition('iteration_')[0]}{TRACKER}"
    named = step_in_tracker(directory.text_of_file(tracker)) if trackers else None
    refused: list[CheckpointRefusal] = []
    if trackers and named not in {one.step for one in candidates}:
        refused.append(
            refuse_checkpoint(tracker, RefusalReason.WRONG_TRACKER, _describe_tracker(directory.text_of_file(tracker)))
        )
    committed = [one for one in candidates if named is not None and one.step <= named]
    if trackers and named is None:
        committed = candidates  # it was being written, when everything before it was complete
    return _newest_complete(
        directory, candidates, committed, tracker=tracker, named=named, refused=refused, passed_over=passed_over
    )


def _newest_complete(
    directory: Directory,
    candidates: list[_Iteration],
    committed: list[_Iteration],
    *,
    tracker: str,
    named: int | None,
    refused: list[CheckpointRefusal],
    passed_over: Collection[int],
) -> Verdict:
    wanted = _Wanted.from_committed(committed)
    for one in candidates:
        if one not in committed:
            newest = "none" if named is None else f"step {named}"
            refused.append(
                refuse_checkpoint(one.name, RefusalReason.NOT_COMMITTED, f"the newest that was committed is {newest}")
            )
            continue
        found = _refusal_of_incomplete(directory, one, wanted)
        if found is None and one.step in passed_over:
            found = refuse_checkpoint(one.name, RefusalReason.LOAD_FAILED)
        if found is None:
            writes = {} if named == one.step else {tracker: str(one.step)}
            return Verdict(one.name, one.step, tuple(refused), writes=writes)
        refused.append(found)
    return Verdict(refused=tuple(refused), aside=(tracker,) if tracker in directory.sizes_of_files() else ())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What this training saves each time, taken from a committed checkpoint that has it.

    Attributes:
        kinds: `model` and `opt`, with their prefixes.
        files: `common.json` and `metadata.json`, as far as they exist.
    """

    kinds: frozenset[str]
    files: frozenset[str]

    @classmethod
    def from_committed(cls, committed: list[_Iteration]) -> _Wanted:
        kinds = frozenset(kind for one in committed for kind in one.kinds_of_files())
        return cls(kinds or frozenset({MODEL}), frozenset(one for each in committed for one in each.sizes) & _DOCUMENTS)


def _iterations_newest_first(directory: Directory) -> list[_Iteration]:
    """Return the iterations, newest first."""
    found: dict[str, _Iteration] = {}
    for path, size in directory.sizes_of_files().items():
        if (match := _PATH.fullmatch(path)) is not None:
            one = found.setdefault(match["name"], _Iteration(match["name"], int(match["step"])))
            one.sizes[match["file"]] = size
    return sorted(found.values(), key=lambda one: one.step, reverse=True)


def _describe_tracker(text: str | None) -> str:
    step = step_in_tracker(text)
    return f"it says {(text or '')[:40]!r}" if step is None else f"it says step {step}, which is not there"


def _refusal_of_incomplete(directory: Directory, one: _Iteration, wanted: _Wanted) -> CheckpointRefusal | None:
    """Return why a committed checkpoint is not complete."""
    names = [name for kind in sorted(wanted.kinds) for name in one.wanted_file_names(kind)]
    missing = [f"{kind}-…" for kind in sorted(wanted.kinds - one.kinds_of_files())]
    missing += [name for name in (*names, *sorted(wanted.files)) if name not in one.sizes]
    if missing:
        return refuse_checkpoint(one.name, RefusalReason.MISSING_SHARD, show_first_names(missing))
    if empty := [name for name in (*names, *sorted(wanted.files)) if not one.sizes[name]]:
        return refuse_checkpoint(one.name, RefusalReason.TRUNCATED_FILE, f"{empty[0]} (0 bytes)")
    if (found := _refusal_of_contradiction(directory, one)) is not None:
        return found
    for path, look in directory.look_into_files([f"{one.name}/{name}" for name in names]):
        if not look.whole:
            short = path.removeprefix(f"{one.name}/")
            return refuse_checkpoint(one.name, RefusalReason.TRUNCATED_FILE, f"{short} ({one.sizes[short]} bytes)")
    return None


def _refusal_of_contradiction(directory: Directory, one: _Iteration) -> CheckpointRefusal | None:
    """Refuse when `common.json` names another step, or `metadata.json` a file that does not exist."""
    read = {
        name: _parse_dictionary(directory.text_of_file(f"{one.name}/{name}"))
        for name in _DOCUMENTS
        if _is_document_read(one, name)
    }
    if damaged := sorted(name for name, content in read.items() if content is None):
        return refuse_checkpoint(one.name, RefusalReason.TRUNCATED_FILE, damaged[0])
    common, metadata = read.get(COMMON) or {}, read.get(METADATA) or {}
    step = common.get("step_num")
    if isinstance(step, int) and step != one.step:
        return refuse_checkpoint(one.name, RefusalReason.MIXED_STEPS, f"{COMMON} was saved at step {step}")
    missing = sorted(_files_in_metadata(metadata) - one.sizes.keys())
    return refuse_checkpoint(one.name, RefusalReason.MISSING_SHARD, show_first_names(missing)) if missing else None


def _is_document_read(one: _Iteration, name: str) -> bool:
    return 0 < one.sizes.get(name, 0) < _LARGEST


def _parse_dictionary(text: str | None) -> dict[str, object] | None:
    try:
        content = json.loads(text or "")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _files_in_metadata(metadata: dict[str, object]) -> set[str]:
    """Return the files in which `metadata.json` places shards."""
    storage = metadata.get("storage_data")
    lists = storage.values() if isinstance(storage, dict) else ()
    entries = (entry for entries in lists if isinstance(entries, list) for entry in entries)
    names = (entry.get("file_name") for entry in entries if isinstance(entry, dict))
    return {name for name in names if isinstance(name, str)}
