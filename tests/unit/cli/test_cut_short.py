"""Output that nobody reads to its end (`| head`) ends a command without a traceback, whichever it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from e2e.bootstrap.paths import CHECKOUT
from hajob.cli.exits import DONE, NOBODY_READS, NOT_DONE, until_nobody_reads

SIMULATE = ("simulate", "-f", str(CHECKOUT / "examples/quickstart.yaml"), "--lose", "node=1")


@pytest.mark.parametrize(
    "words",
    [("hajob.cli.main", *SIMULATE), ("hajob.cli.main", "--help"), ("hajob.cli.completion", "")],
    ids=["simulate", "help", "completion"],
)
def test_a_reader_that_leaves_is_no_error(words: tuple[str, ...]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([sys.executable, "-m", *words], stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode in {NOBODY_READS, DONE}, done.stderr) == (True, ""), (
        "argparse does without a word on its own"
    )


def test_what_a_command_returns_is_its_exit_code() -> None:
    assert until_nobody_reads(lambda: NOT_DONE) == NOT_DONE
