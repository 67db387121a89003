"""Which store the processes of a pod may take for theirs, by the coordinator's orders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hajob.protocol import sidecar_pb2 as pb
from tests.rigs.rank_pod import ADDRESS
from tests.rigs.store_gate import StoreGateRules
from trainer_sidecar.agent.clock import BootClock
from trainer_sidecar.agent.store.gate import StoreGate
from trainer_sidecar.agent.supervise.orders import Orders
from trainer_sidecar.store_protocol import EARLIER, Request, StoreConversation


def test_what_was_written_is_kept_until_another_store_is_filled() -> None:
    orders, rules = Orders(cast("Any", SimpleNamespace())), StoreGateRules()
    gate = StoreGate(ADDRESS, 1, rules, BootClock())

    def hear(order: pb.NodeOrder) -> list[bytes]:
        orders.apply_order(order)
        rules.name, rules.kept = orders.store, orders.store_kept
        gate.follow_changed_order()
        return [entry.key for part in gate.take_content("word") for entry in part.entries]

    hear(pb.NodeOrder(revision=1, store="1/1"))
    talk = StoreConversation()
    (written,) = talk.cut_requests(EARLIER.set_request(b"root", b"info"))
    assert isinstance(written, Request)
    gate.journal.note_request(written, 0)
    assert hear(pb.NodeOrder(revision=2)) == [b"root"], "from a coordinator that does not know yet whether ranks run"
    assert gate.rules.store_name() == "1/1"
    assert hear(pb.NodeOrder(revision=2, store="1/2", store_held=True, store_wanted="1/2")) == [b"root"]
    assert hear(pb.NodeOrder(revision=3, store="1/2", store_kept=True)) == [b"root"]
    assert hear(pb.NodeOrder(revision=4, store="1/3")) == []
    assert next(gate.take_content("word")).problem == "the store was lost with all that was in it"
    assert hear(pb.NodeOrder(revision=5, store="2/4")) == []
    assert next(gate.take_content("word")).problem == "", "another start of the job"
