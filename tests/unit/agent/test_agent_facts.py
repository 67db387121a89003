"""What a fact carries of a rank's output: whole lines, the newest ones."""

from __future__ import annotations

import pytest

from trainer_sidecar.agent.facts import MESSAGE_CHARACTERS, newest_text

FULL = "x" * MESSAGE_CHARACTERS


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], ""),
        (["loss 1", "loss 2"], "loss 1\nloss 2"),
        (["a line that does not fit", FULL[1:]], FULL[1:]),
        (["cut off", FULL], FULL),
        (["one line" + FULL], FULL),
    ],
)
def test_output_begins_with_a_whole_line(lines: list[str], text: str) -> None:
    assert newest_text(lines) == text
