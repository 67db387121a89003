# ruff: noqa: ANN401 - values of strangers pass through here
"""The controller's conversation with whoever registered the four callbacks, called MindX.

There is one place for an answer, the *token*. An accepted notification puts its word there and wakes the state
machine; a state that waits takes whatever word it finds, also one that was left there long ago. That is the trap of
the sticky wake-up (docs/protocols/mindio.md §5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import _settings as settings

NAMES = ("report_fault_ranks", "report_stop_complete", "report_strategies", "report_result")
STRATEGIES = ("retry", "recover", "dump", "exit", "downgrade", "upgrade", "migration", "continue")
INVALID = "invalid"

#: Registered callbacks outlive a controller: a second one in the same process finds them.
callbacks: dict[str, Callable[..., object]] = {}
_calling = threading.RLock()


class MindX:
    """Callbacks out, one token in. `condition` is the controller's own."""

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition
        self.present = False
        self.token: str | None = None
        self.params = ""
        self.offered: list[str] | None = None
        self.pause_seconds = 0
        self.strategy_seconds = 0

    def look(self) -> None:
        """Decide once, at start, whether MindX exists."""
        self.present = all(name in callbacks for name in NAMES)
        if not settings.on("four_callback_rule"):
            self.present = bool(callbacks)

    def put(self, token: str, params: str = "") -> None:
        """An accepted notification: leave its word and wake the state machine."""
        with self.condition:
            self.token, self.params = token, params
            self.condition.notify_all()

    def drop(self) -> None:
        """Forget a word that nobody took."""
        with self.condition:
            self.token = None

    def wait(self, seconds: float, closing: Callable[[], bool], *, take: bool = True) -> str | None:
        """The next word, or None after `seconds` or when the controller is being destroyed."""
        seconds = seconds if settings.on("late_answers_count") else min(seconds, 10.0)
        end = time.monotonic() + (seconds if settings.on("timers_expire") else 3600.0)
        with self.condition:
            while self.token is None and not closing():
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self.condition.wait(left)
            token = self.token
            if take:
                self.token = None
            return token

    def call(self, name: str, *arguments: Any) -> bool:
        """Run a callback; False when it raises or is not there."""
        function = callbacks.get(name)
        if function is None:
            return False
        shown = self.shown(name, arguments)
        if not settings.on("slow_callback_stalls"):
            threading.Thread(target=function, args=shown, daemon=True).start()
            return True
        with _calling:
            try:
                function(*shown)
            except Exception as error:  # whatever a stranger's callback raises must not end the controller
                settings.log(f"callback {name} raised {error!r}")
                return False
        return True

    @staticmethod
    def shown(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments as MindX gets them."""
        if name == "report_fault_ranks" and not settings.on("callback_shapes"):
            return arguments[:1]
        if name in {"report_stop_complete", "report_result"} and not settings.on("texts"):
            return arguments[0], "", *arguments[2:]
        return arguments
