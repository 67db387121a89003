"""The one reader of rank logs: it reads on, waits for whole lines and leaves out what a kill has cut off."""

from __future__ import annotations

import json
import os
from pathlib import Path

from e2e.trainer.events import EventLog, EventReader, read_events


def line(step: int, rank: int = 0) -> str:
    return json.dumps({"t": step, "rank": rank, "pid": 1, "event": "step_end", "step": step})


def test_a_line_being_written_is_read_once_whole(tmp_path: Path) -> None:
    logs, path = EventReader(tmp_path), tmp_path / "events-rank0.jsonl"
    assert logs.read() == []
    whole, half = line(1) + "\n", line(2)
    path.write_text(whole + half[:9])
    assert [event["step"] for event in logs.read()] == [1]
    path.write_text(whole + half + "\n")
    assert [event["step"] for event in logs.read()] == [2]
    assert logs.read() == []


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "events-rank0.jsonl").write_text(line(1)[:12] + "\n" + line(2) + "\n")
    assert [event["step"] for event in read_events(tmp_path)] == [2]


def test_events_of_all_ranks_come_in_order_of_time(tmp_path: Path) -> None:
    for rank, step in ((0, 3), (1, 2)):
        log = EventLog(tmp_path, rank, 0, 0)
        log.add("step_end", at=step, step=step)
    assert [event["rank"] for event in read_events(tmp_path)] == [1, 0]


def test_processes_of_other_containers_are_told_apart(tmp_path: Path) -> None:
    """In a container of its own each of them may be number 13, two in a row and two at once."""
    told = [(0, 13, 700), (1, 13, 700), (0, 13, 900)]
    for at, (rank, pid, start) in enumerate(told):
        event = {"t": at, "rank": rank, "pid": pid, "space": 1, "start": start, "event": "exec"}
        with (tmp_path / f"events-rank{rank}.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
    assert len({event["pid"] for event in read_events(tmp_path)}) == 3


def test_a_process_beside_the_reader_keeps_its_number(tmp_path: Path) -> None:
    EventLog(tmp_path, rank=0, incarnation=1, attempt=1).add("exec")
    assert [event["pid"] for event in read_events(tmp_path)] == [os.getpid()]
