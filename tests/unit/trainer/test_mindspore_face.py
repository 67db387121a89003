"""The toy's MindSpore face keeps the contract of MindSpore's own callback, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.trainer import mindspore

CONTRACT = {
    "UCEError: error_code=507054": 2,
    "HCCEError: link down": 4,
    "SuspectRemoteError: the peer is gone": 4,
    "ForceStopError: stopped": 0,
    "ARF FINISH, do next step repair weight.": 6,
    "STEP FINISH": 7,
    "CUDA out of nothing": 8,
}
"""Text of an exception → the state that is reported (MindSpore 2.10, train/model.py, `_handle_exception_info`)."""


class Training:
    """Fails once with a text, then ends."""

    def __init__(self, text: str) -> None:
        self.told: list[Any] = []
        self._text = text
        self.mindio: Any = self

    def run(self) -> None:
        text, self._text = self._text, ""
        if text:
            raise RuntimeError(text)

    def go_on(self) -> None:
        self.told.append("goes on")

    def tft_report_error(self, state: int) -> None:
        self.told.append(state)

    def tft_wait_next_action(self) -> int:
        self.told.append("waits")
        return 0

    def tft_destroy_processor(self) -> None:
        self.told.append("leaves")


@pytest.mark.parametrize(("text", "state"), CONTRACT.items())
def test_each_error_has_its_state(text: str, state: int) -> None:
    assert mindspore.state_of(text) == state


@pytest.mark.parametrize("text", [text for text, state in CONTRACT.items() if state != mindspore.UNKNOWN])
def test_what_is_known_waits_and_goes_on(text: str) -> None:
    training = Training(text)
    mindspore.run(training, training)  # type: ignore[arg-type]
    assert training.told == [CONTRACT[text], "waits", "goes on", "leaves"]


def test_what_is_unknown_is_raised_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    training = Training("no such word")

    def leave(code: int) -> None:
        raise SystemExit(code)

    def wait() -> int:
        assert "RuntimeError: no such word" in capsys.readouterr().err, "the traceback does not wait for MindIO"
        return 0

    monkeypatch.setattr(mindspore, "leave", leave)
    monkeypatch.setattr(training, "tft_wait_next_action", wait)
    with pytest.raises(SystemExit, match="1"):
        mindspore.run(training, training)  # type: ignore[arg-type]
    assert training.told == [8]
