"""Requests and replies of a newer torch's clients, cut at any byte."""

from __future__ import annotations

import struct

import pytest

from trainer_sidecar.agent.store.journal import StoreJournal
from trainer_sidecar.store_protocol import LATER, MAGIC, Request, StoreConversation


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


KEY, NUMBER = string(b"key"), struct.pack("<q", 5)
NEWER = {
    "queue_push": (bytes([14]) + KEY + string(b"item"), b""),
    "queue_pop": (bytes([15]) + KEY, struct.pack("<q", 1) + string(b"item")),
    "queue_pop of an empty one": (bytes([15]) + KEY, struct.pack("<q", 0)),
    "queue_len": (bytes([16]) + KEY, NUMBER),
    "list_keys": (bytes([17]), struct.pack("<q", 2) + string(b"one") + string(b"")),
    "barrier": (bytes([18]) + KEY + NUMBER, b"\0"),
}


@pytest.mark.parametrize("name", NEWER)
def test_a_newer_operation_is_cut(name: str) -> None:
    request, reply = NEWER[name]
    after = bytes([4]) + KEY + NUMBER  # add
    talk = StoreConversation()
    for sent, answer in ((MAGIC + request, reply), (after, NUMBER)):
        asked = [one for byte in sent for one in talk.cut_requests(bytes([byte]))]
        for one in asked:
            assert isinstance(one, Request)
            talk.note_sent_request(one, 0)
        assert [one.raw for one in asked if isinstance(one, Request)] == [sent.removeprefix(MAGIC)]
        assert [raw for byte in answer for raw, _ in talk.cut_replies(bytes([byte]))] == ([answer] if answer else [])
    assert not talk.lost


def test_a_canceled_barrier() -> None:
    talk = StoreConversation()
    for request in talk.cut_requests(MAGIC + NEWER["barrier"][0] + bytes([12])):
        assert isinstance(request, Request)
        talk.note_sent_request(request, 0)
    ((raw, answers),) = talk.cut_replies(b"\1")
    assert (raw, [one.request.operation.name for one in answers]) == (b"\1", ["cancel_wait"])
    assert not talk.unanswered_requests()


def test_what_is_in_a_queue_cannot_be_kept() -> None:
    journal, talk = StoreJournal(), StoreConversation()
    (pushed,) = talk.cut_requests(MAGIC + NEWER["queue_push"][0])
    assert isinstance(pushed, Request)
    journal.note_request(pushed, 0)
    assert "queue" in journal.problem


def test_an_unknown_operation_ends_the_keeping() -> None:
    talk = StoreConversation()
    assert talk.cut_requests(MAGIC + bytes([20]) + KEY) == [bytes([20]) + KEY]
    assert talk.lost
    assert talk.cut_requests(b"more") == [b"more"]


def test_the_numbers_are_those_of_torchs_header() -> None:
    assert {number: one.name for number, one in LATER.operations.items()} == {
        1: "set", 2: "compare_set", 3: "get", 4: "add", 5: "check", 6: "wait", 7: "num_keys", 8: "delete", 9: "append",
        10: "multi_get", 11: "multi_set", 12: "cancel_wait", 13: "ping",
        14: "queue_push", 15: "queue_pop", 16: "queue_len", 17: "list_keys", 18: "barrier",
    }  # fmt: skip
