"""The agent's side of changes to checkpoints: one order, one answer, and no waiting for a launcher that is gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trainer_sidecar.agent.supervise.user_files import FileOrders
from trainer_sidecar.checkpoints.verdict import Copy, Verdict

VERDICT = Verdict("a", 5, copies=(Copy("x", "y"),), writes={"tracker": "5"}, aside=("z",))
DONE = {"kind": "files", "number": 1, "errno": 0, "problem": ""}


class Launcher:
    """Where orders go; while it is not connected it takes none."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        self.connected = True
        self.files = FileOrders(self._send)

    def _send(self, order: dict[str, Any]) -> bool:
        self.orders.append(order)
        return self.connected

    async def ordered(self) -> asyncio.Task[None]:
        """An order that has been sent and not been answered."""
        task = asyncio.create_task(self.files.carry_out_verdict(VERDICT))
        await asyncio.sleep(0)
        return task


async def test_the_order_says_all_that_the_verdict_asks_for() -> None:
    launcher = Launcher()
    task = await launcher.ordered()
    (order,) = launcher.orders
    launcher.files.apply_answer(DONE)
    await task
    assert order == {
        "kind": "files",
        "number": 1,
        "copies": [["x", "y"]],
        "writes": {"tracker": "5"},
        "aside": ["z"],
    }


async def test_where_nothing_is_to_be_done_nobody_is_asked() -> None:
    launcher = Launcher()
    await launcher.files.carry_out_verdict(Verdict("a", 5))
    assert launcher.orders == []


async def test_the_launchers_problem_keeps_its_number() -> None:
    launcher = Launcher()
    task = await launcher.ordered()
    launcher.files.apply_answer({**DONE, "errno": 13, "problem": "user 7 may not"})
    with pytest.raises(PermissionError, match="user 7 may not"):
        await task


async def test_an_answer_to_an_older_order_is_none() -> None:
    launcher = Launcher()
    first = await launcher.ordered()
    launcher.files.fail_waiting_order()
    second = await launcher.ordered()
    launcher.files.apply_answer(DONE)
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], ConnectionError)
    assert not second.done()
    launcher.files.apply_answer({**DONE, "number": 2})
    await second


async def test_without_a_launcher_it_does_not_wait() -> None:
    launcher = Launcher()
    launcher.connected = False
    with pytest.raises(ConnectionError, match="not there yet"):
        await launcher.files.carry_out_verdict(VERDICT)
