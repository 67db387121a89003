"""MindIO is told of steps that the ranks have not made yet, so that it stops them in time; a lock hears the truth."""

from __future__ import annotations

import struct

import pytest

from trainer_sidecar.agent.gate import frames
from trainer_sidecar.agent.gate.frames import FrameReader, Message, Piece
from trainer_sidecar.agent.gate.step_margin import STEP_AT, StepMargin


def collected(step: int, run_status: int = 0) -> Piece:
    """A rank's answer to the question how far it is."""
    heartbeat = struct.pack("<iiqbbbb4xqq16s", 3, 1, step, run_status, 0, 0, 0, 0, -1, b"")
    body = struct.pack("<iHxxq", 0, 41, -1) + heartbeat
    content = frames.HEADER.pack(frames.COLLECTED, 0, len(body), 0, 0) + body
    (piece,) = FrameReader().cut_pieces(content)
    return piece


def action(kind: int, serial: int = 42) -> Message:
    body = struct.pack("<H6xq", serial, 7)
    return Message(kind, frames.HEADER.pack(kind, 0, len(body), 0, 0) + body)


def step_of(piece: Piece) -> int:
    return int(frames.STEP.unpack_from(piece.data, STEP_AT)[0])


def test_a_rank_is_said_to_be_further() -> None:
    before = collected(100)
    after = StepMargin(3).with_steps_ahead(before, 10)
    assert step_of(after) == 110
    assert after.data[:STEP_AT] == before.data[:STEP_AT]
    assert after.data[STEP_AT + 8 :] == before.data[STEP_AT + 8 :]
    assert after.message == before.message, "the agent itself goes by what the rank has said"


@pytest.mark.parametrize(("run_status", "ahead"), [(0, 0), (1, 10), (8, 10)])
def test_no_other_answer_is_changed(run_status: int, ahead: int) -> None:
    piece = collected(100, run_status)
    margin = StepMargin(3)
    assert margin.with_steps_ahead(piece, ahead) is piece
    assert margin.refusal_of_lock(action(frames.LOCK)) == b""


def test_a_lock_at_the_told_step_is_refused_once() -> None:
    """A fault has come before the move: nobody would reach that step, and MindIO would wait 30 s for it."""
    margin = StepMargin(3)
    margin.with_steps_ahead(collected(100), 10)
    answer = Message(frames.LOCKED, margin.refusal_of_lock(action(frames.LOCK)))
    result, serial = struct.unpack_from("<iH", answer.content, frames.HEADER.size)
    status = answer.rank_status()
    assert (result, serial) == (5, 42)
    assert status is not None
    assert (status.rank, status.step) == (3, 100)
    assert margin.refusal_of_lock(action(frames.LOCK)) == b"", "the rank is locked where it is"


def test_after_the_pause_a_lock_is_the_ranks() -> None:
    margin = StepMargin(3)
    margin.with_steps_ahead(collected(100), 10)
    assert margin.refusal_of_lock(action(frames.PAUSE)) == b""
    assert margin.refusal_of_lock(action(frames.LOCK)) == b""
