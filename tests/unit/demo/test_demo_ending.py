"""A signal ends the demo, also where the exception that it raises is swallowed."""

from __future__ import annotations

import subprocess
import sys

SWALLOWED = """
import os, signal, time
from e2e.demo import __main__ as demo

demo.AGAIN_SECONDS = 0.1
ending = demo.Ending()
try:
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(60)
except KeyboardInterrupt:
    print("swallowed")  # as in a destructor
try:
    time.sleep(60)
except KeyboardInterrupt:
    ending.note_begun()
time.sleep(0.3)
print(ending.signal)
"""


def test_an_end_that_is_swallowed_is_asked_for_again() -> None:
    """In a process of its own: pytest has the alarm for its limits."""
    told = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split() == ["swallowed", "1"]
