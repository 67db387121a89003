"""A start that computes or prints goes on; one whose processes only wait stands still."""

from __future__ import annotations

import subprocess
import sys
import time

from trainer_sidecar.launcher.signs import SHARE, Signs, used_processor_seconds

BUSY = "while True: pass"
IDLE = "import time; print('', flush=True); time.sleep(60)"


def test_a_process_that_computes_is_a_sign() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        signs = Signs()
        signs.has_new_sign([busy.pid], 0)
        enough, deadline = used_processor_seconds(busy.pid) + SHARE, time.monotonic() + 60
        while used_processor_seconds(busy.pid) < enough and time.monotonic() < deadline:
            time.sleep(0.05)
        seen = signs.has_new_sign([busy.pid], 0, 1.0)
        busy.kill()
    assert seen


def test_a_process_that_waits_is_none() -> None:
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()
        time.sleep(0.5)
        signs = Signs()
        signs.has_new_sign([idle.pid], 3)
        assert not signs.has_new_sign([idle.pid], 3)
        assert signs.has_new_sign([idle.pid], 4), "a line was printed"
        idle.kill()
    assert used_processor_seconds(idle.pid) == 0.0
