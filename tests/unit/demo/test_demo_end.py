"""What ends the demo is its exit code, whatever it was doing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from e2e.demo import __main__ as demo

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _signals_of_the_tests() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("turned", [False, True])
def test_a_signal_is_the_reason_even_as_a_librarys_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals, *, turned: bool
) -> None:
    def play(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except BaseException as error:
            if turned:
                raise ValueError("error calling a function") from error
            raise

    monkeypatch.setattr(demo, "_play", play)
    monkeypatch.setattr("sys.argv", ["demo"])
    assert demo.main() == 128 + number
    assert "Interrupted" in capsys.readouterr().err


def test_an_error_that_nobody_expects_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(demo, "_play", play)
    monkeypatch.setattr("sys.argv", ["demo"])
    with pytest.raises(ValueError, match="a mistake"):
        demo.main()
