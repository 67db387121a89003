"""Have the launcher change the user's checkpoints: the training could not write files of the agent's user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from trainer_sidecar.checkpoints.verdict import Verdict


def order_to_change_files(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict's changes in the launcher's form."""
    return {
        "copies": [[copy.source, copy.target] for copy in verdict.copies],
        "writes": dict(verdict.writes or {}),
        "aside": list(verdict.aside),
    }


class FileOrders:
    """The order to change files that the launcher carries out; there is one at a time.

    `send` gives the launcher a message; False: it is not connected.
    """

    def __init__(self, send: Callable[[dict[str, Any]], bool]) -> None:
        self._send = send
        self._number = 0
        self._answer: asyncio.Future[None] | None = None

    async def carry_out_verdict(self, verdict: Verdict) -> None:
        """Carry out a verdict's changes. OSError: they failed, or the launcher is not there (yet)."""
        if verdict.is_tracked:
            return
        self._number += 1
        answer = self._answer = asyncio.get_running_loop().create_future()
        if not self._send({"kind": "files", "number": self._number, **order_to_change_files(verdict)}):
            raise ConnectionError("the launcher, which changes them as the training's user, is not there yet")
        await answer

    def apply_answer(self, message: Mapping[str, Any]) -> None:
        """Take the launcher's answer. KeyError, TypeError, ValueError: malformed."""
        number, code, problem = int(message["number"]), int(message["errno"]), str(message["problem"])
        if self._answer is None or self._answer.done() or number != self._number:
            return
        if code:
            self._answer.set_exception(OSError(code, problem))
        else:
            self._answer.set_result(None)

    def fail_waiting_order(self) -> None:
        """Note that the launcher has ended and will not answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the launcher, which changes them, is gone"))
