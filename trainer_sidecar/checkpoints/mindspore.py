"""MindSpore's layout of one file per rank (docs/user/checkpoints.md, "MindSpore").

`[checkpoint/]rank_N/<prefix>-<epoch>_<step>.ckpt`, beside it `meta.json`, which names what a resumed training loads. A
file is written under `.tmp` and renamed, which is its commit mark. MindIO's last checkpoint has one file for each
shard, not for each rank: the others are filled from the rank that holds the same shard. Who that is says
`group_info.pb` where the training wrote one, else the layout. Without MindFormers MindSpore saves it into a directory
of its own, `ttp_saved_checkpoints-step_N/rank_R/`, named `…_tmp` until one rank renames it; nothing there names what a
resumed training loads but the step in `HAJOB_LOAD_STEP`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from hajob.domain.checkpoints import CheckpointRefusal, RefusalReason
from hajob.domain.layout import Layout
from trainer_sidecar.checkpoints.directory import Directory
from trainer_sidecar.checkpoints.protobuf import fields_of_message, repeated_numbers
from trainer_sidecar.checkpoints.verdict import Copy, Verdict, refuse_checkpoint, show_first_names

META_FILE: Final = "meta.json"
GROUP_FILE: Final = "group_info.pb"
_RANK: Final = re.compile(
    r"(?P<base>(?:checkpoint/)?)(?P<directory>(?:rank_|ckpt_dir)(?P<rank>\d{1,7}))/(?P<file>[^/]+)"
)
_FILE: Final = re.compile(
    r"(?P<prefix>.+)-(?P<epoch>\d{1,12})_(?P<step>\d{1,12})(?P<suffix>\.ckpt|\.safetensors|\.tmp)"
)
_SAVED: Final = re.compile(
    r"(?P<name>(?:ttp|tft)_saved_checkpoints-step_(?P<step>\d{1,12}))(?P<temporary>_tmp)?/(?P<inner>.+)"
)
_STRATEGY: Final = re.compile(r"strategy/(?:.*/)?(?P<file>[^/]+\.ckpt)")
_OF_RANK: Final = re.compile(r"rank_(\d{1,7})")
_RESTORE_LIST: Final = 2  # field of group_info.pb: the ranks that hold the same shard
_DIMENSION: Final = 1

Key = tuple[int, int]
"""Epoch and step within it."""


@dataclass(slots=True)
class _Files:
    """The existing files, by checkpoint and rank."""

    saved: dict[Key, dict[int, str]] = field(default_factory=dict)
    paths: dict[Key, list[str]] = field(default_factory=dict)  # all of them; `saved` has the latest of each rank
    temporary: dict[Key, set[int]] = field(default_factory=dict)
    directories: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)  # group_info.pb by rank
    strategies: set[int | None] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Filled:
    """A checkpoint with the files to copy, or why it stays incomplete; the step that its files tell, if they do."""

    copies: tuple[Copy, ...] = ()
    refusal: CheckpointRefusal | None = None
    step: int | None = None


def evaluate_ranks(directory: Directory, layout: Layout, passed_over: Collection[int] = ()) -> Verdict:
    """Return the verdict on the newest checkpoint that is complete, or can be completed, for a job of this layout."""
    files = _sort_files(directory)
    wrong = [
        refuse_checkpoint(path, RefusalReason.WRONG_TRACKER, what) for path, what in _wrong_trackers(directory, files)
    ]
    refused: list[CheckpointRefusal] = [*wrong[:1]]
    for key in sorted({*files.saved, *files.temporary}, reverse=True):
        filled = _fill_missing_shards(directory, layout, files, key)
        step = step_of_key(key) if filled.step is None else filled.step
        if filled.refusal is None and step in passed_over:
            refused.append(refuse_checkpoint(_name_of_checkpoint(key), RefusalReason.LOAD_FAILED))
            continue
        if filled.refusal is None:
            writes = _trackers_to_write(directory, layout, files, key)
            return Verdict(
                _name_of_checkpoint(key), step, tuple(refused), filled.copies, writes, _files_of_newer(files, key)
            )
        refused.append(filled.refusal)
    return Verdict(refused=tuple(refused), aside=_files_to_put_aside(files, directory))


def evaluate_saved_by_mindio(directory: Directory, layout: Layout, passed_over: Collection[int] = ()) -> Verdict | None:
    """Return the verdict on the newest checkpoint that MindSpore itself saved for MindIO; None: there are none."""
    found = _saved_directories(directory)
    refused: list[CheckpointRefusal] = []
    for name, step, files in found:
        if files is None:
            refused.append(refuse_checkpoint(f"{name}_tmp", RefusalReason.TEMPORARY_LEFT_BEHIND))
            continue
        key = max(files.saved, default=(0, 0))
        filled = _fill_missing_shards(directory, layout, files, key)
        if filled.refusal is None and step in passed_over:
            refused.append(refuse_checkpoint(name, RefusalReason.LOAD_FAILED))
            continue
        if filled.refusal is None:
            return Verdict(name, step, tuple(refused), filled.copies, {})
        refused.append(refuse_checkpoint(name, RefusalReason(filled.refusal.reason), filled.refusal.detail))
    return Verdict(refused=tuple(refused)) if found else None


def _saved_directories(directory: Directory) -> list[tuple[str, int, _Files | None]]:
    """Return name, step and files of each, newest first; no files: it was never finished."""
    found: dict[tuple[int, str, bool], _Files] = {}
    for path in directory.sizes_of_files():
        match = _SAVED.fullmatch(path)
        if match is None or (inner := _RANK.fullmatch(match["inner"])) is None:
            continue
        finished = match["temporary"] is None
        files = found.setdefault((int(match["step"]), match["name"], finished), _Files(strategies={None}))
        rank = int(inner["rank"])
        files.directories[rank] = path.rpartition("/")[0]
        _sort_file(files, rank, inner["file"], path)
    ordered = sorted(found.items(), reverse=True)
    return [(name, step, files if finished else None) for (step, name, finished), files in ordered]


def step_of_key(key: Key) -> int:
    """Return steps since the start, if the files do not tell: with a sink of one step every step is an epoch."""
    epoch, step = key
    return max(epoch - 1, 0) + step


def ranks_with_same_shard(layout: Layout, rank: int, told: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the ranks whose file may stand for this rank's, in the order to try them.

    Args:
        layout: of the job.
        rank: whose file is missing.
        told: ranks that hold the same shard, as the training itself wrote them down; empty: the layout says.
    """
    if rank in told:
        return tuple(other for other in told if other != rank)
    held = [layout.holders_of_shard(rank, kind) for kind in layout.copy_kinds]
    return tuple(other for other in held[0] if other != rank and all(other in one for one in held))


def read_restore_list(content: bytes) -> tuple[int, ...]:
    """Return the ranks of `group_info.pb` that hold the same shard; none when it cannot be read."""
    try:
        inner = [
            value
            for number, value in fields_of_message(content)
            if number == _RESTORE_LIST and isinstance(value, bytes)
        ]
        return tuple(rank for one in inner for rank in repeated_numbers(one, _DIMENSION))
    except ValueError:
        return ()


def _restore_list_of_rank(directory: Directory, files: _Files, rank: int) -> tuple[int, ...]:
    path = files.groups.get(rank)
    return read_restore_list(directory.content_of_file(path) or b"") if path is not None else ()


def _sort_files(directory: Directory) -> _Files:
    files = _Files()
    for path, size in directory.sizes_of_files().items():
        if (strategy := _STRATEGY.fullmatch(path)) is not None and size:
            of_rank = _OF_RANK.search(strategy["file"])
            files.strategies.add(int(of_rank[1]) if of_rank else None)
        elif (match := _RANK.fullmatch(path)) is not None:
            rank = int(match["rank"])
            files.directories[rank] = match["base"] + match["directory"]
            _sort_file(files, rank, match["file"], path)
    return files


def _sort_file(files: _Files, rank: int, file: str, path: str) -> None:
    if file == GROUP_FILE:
        files.groups[rank] = path
    name = _FILE.fullmatch(file)
    if name is None:
        return
    key = (int(name["epoch"]), int(name["step"]))
    if name["suffix"] == ".tmp":
        files.temporary.setdefault(key, set()).add(rank)
    else:
        files.paths.setdefault(key, []).append(path)
        of_ranks = files.saved.setdefault(key, {})
        of_ranks[rank] = max(of_ranks.get(rank, ""), path, key=_order_by_repetition)


def _order_by_repetition(path: str) -> tuple[int, str]:
    """Order by the suffix `_1`, `_2`, … that a process adds if files of its prefix exist: a longer name is later."""
    return len(path), path


def _name_of_checkpoint(key: Key) -> str:
    return f"{key[0]}_{key[1]}"


def _fill_missing_shards(directory: Directory, layout: Layout, files: _Files, key: Key) -> _Filled:
    """Choose the files to copy so that every rank has its own."""
    there = {rank: path for rank, path in files.saved.get(key, {}).items() if rank < layout.world_size}
    looks = {rank: directory.look_into_file(path) for rank, path in there.items() if directory.sizes_of_files()[path]}
    missing = [rank for rank in range(layout.world_size) if rank not in looks or not looks[rank].whole]
    givers = {rank: there[rank] for rank, look in looks.items() if look.whole and not look.partial}
    copies = []
    for rank in missing:
        others = ranks_with_same_shard(layout, rank, _restore_list_of_rank(directory, files, rank))
        giver = next((other for other in others if other in givers), None)
        if giver is None:
            return _Filled(refusal=_refusal_of_missing(files, key, rank, there))
        copies.append(Copy(givers[giver], there.get(rank) or _path_for_rank(files, givers[giver], giver, rank)))
    if refusal := _refusal_of_strategies(layout, files, key, filled=bool(copies)):
        return _Filled(refusal=refusal)
    steps = {look.step for look in looks.values() if look.whole and look.step is not None}
    if len(steps) > 1:
        text = ", ".join(map(str, sorted(steps)))
        return _Filled(
            refusal=refuse_checkpoint(
                _name_of_checkpoint(key), RefusalReason.MIXED_STEPS, f"its files were saved at steps {text}"
            )
        )
    return _Filled(tuple(copies), step=next(iter(steps), None))


def _refusal_of_missing(files: _Files, key: Key, rank: int, there: dict[int, str]) -> CheckpointRefusal:
    """Return the refusal for a shard that no other rank can supply."""
    name = _name_of_checkpoint(key)
    if rank in there:
        return refuse_checkpoint(name, RefusalReason.TRUNCATED_FILE, there[rank])
    if rank in files.temporary.get(key, ()):
        return refuse_checkpoint(name, RefusalReason.TEMPORARY_LEFT_BEHIND, f"rank {rank}")
    others = sorted(other for other, ranks in files.saved.items() if rank in ranks)
    if others:
        return refuse_checkpoint(
            name, RefusalReason.MIXED_STEPS, f"rank {rank} has {_name_of_checkpoint(others[-1])} and not this one"
        )
    return refuse_checkpoint(name, RefusalReason.MISSING_SHARD, f"rank {rank}, and no file that holds the same shard")


def _refusal_of_strategies(layout: Layout, files: _Files, key: Key, *, filled: bool) -> CheckpointRefusal | None:
    """Check the strategy files, needed to read MindIO's last checkpoint: an existing folder must hold all."""
    if None in files.strategies or (not files.strategies and not filled):
        return None
    missing = [f"rank {rank}" for rank in range(layout.world_size) if rank not in files.strategies]
    return (
        refuse_checkpoint(_name_of_checkpoint(key), RefusalReason.MISSING_STRATEGY, show_first_names(missing))
        if missing
        else None
    )


def _path_for_rank(files: _Files, path: str, giver: int, rank: int) -> str:
    """Return the path of a rank's file, named as its partner's is."""
    given, _, file = path.rpartition("/")
    directory = files.directories.get(rank) or re.sub(r"\d+$", str(rank), given)
    return f"{directory}/{_file_name_of_rank(file, giver, rank)}"


def _file_name_of_rank(file: str, giver: int, rank: int) -> str:
    return re.sub(rf"rank_{giver}(?!\d)", f"rank_{rank}", file)


def _wrong_trackers(directory: Directory, files: _Files) -> Iterator[tuple[str, str]]:
    """Return the `meta.json` files that name a missing file."""
    for base in files.directories.values():
        path = f"{base}/{META_FILE}"
        text = directory.text_of_file(path)
        if text is None and path not in directory.sizes_of_files():
            continue
        named = _file_named_in_meta(text)
        if named is None:
            yield path, "it cannot be read"
        elif f"{base}/{named}" not in directory.sizes_of_files():
            yield path, f"it names {named[:80]}, which is not there"


def _file_named_in_meta(text: str | None) -> str | None:
    meta = _read_meta(text)
    named = meta.get("last_ckpt_file") if isinstance(meta, dict) else None
    return named if isinstance(named, str) else None


def _trackers_to_write(directory: Directory, layout: Layout, files: _Files, key: Key) -> dict[str, str]:
    """Return `meta.json` of each rank that would load another; a training without any picks the newest files itself."""
    if not any(f"{base}/{META_FILE}" in directory.sizes_of_files() for base in files.directories.values()):
        return {}
    found = {}
    giver, path = next(iter(sorted(files.saved[key].items())))
    for rank in range(layout.world_size):
        own = files.saved[key].get(rank) or _path_for_rank(files, path, giver, rank)
        base, _, file = own.rpartition("/")
        meta = {"last_epoch": key[0], "last_step": key[1], "last_ckpt_file": file}
        if _read_meta(directory.text_of_file(f"{base}/{META_FILE}")) != meta:
            found[f"{base}/{META_FILE}"] = json.dumps(meta)
    return found


def _files_of_newer(files: _Files, key: Key) -> tuple[str, ...]:
    """Return refused files: with MindIO on MindFormers loads what was written last, whatever `meta.json` says."""
    return tuple(sorted(path for other, paths in files.paths.items() if other > key for path in paths))


def _read_meta(text: str | None) -> object:
    try:
        return json.loads(text or "")
    except ValueError:
        return None


def _files_to_put_aside(files: _Files, directory: Directory) -> tuple[str, ...]:
    """Return all files, to be put aside: without `meta.json` a training loads the newest file of its rank."""
    saved: Iterable[str] = (path for paths in files.paths.values() for path in paths)
    metas = (f"{base}/{META_FILE}" for base in files.directories.values())
    return tuple(sorted([*saved, *(path for path in metas if path in directory.sizes_of_files())]))
