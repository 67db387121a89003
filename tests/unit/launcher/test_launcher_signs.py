"""A start that computes or prints goes on; one whose processes only wait stands still."""

from __future__ import annotations

import subprocess
import sys
import time

from trainer_sidecar.launcher.signs import SHARE, Signs, used

BUSY = "while True: pass"
IDLE = "import time; print('', flush=True); time.sleep(60)"


def test_a_process_that_computes_is_a_sign() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        signs = Signs()
        signs.look([busy.pid], 0)
        enough, deadline = used(busy.pid) + SHARE, time.monotonic() + 60
        while used(busy.pid) < enough and time.monotonic() < deadline:
            time.sleep(0.05)
        seen = signs.look([busy.pid], 0, 1.0)
        busy.kill()
    assert seen


def test_a_process_that_waits_is_none() -> None:
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()
        time.sleep(0.5)
        signs = Signs()
        signs.look([idle.pid], 3)
        assert not signs.look([idle.pid], 3)
        assert signs.look([idle.pid], 4), "a line was printed"
        idle.kill()
    assert used(idle.pid) == 0.0
