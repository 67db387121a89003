"""The six faults of the demo, watched through the page in a real browser.

Pictures are taken after each fault and kept in `$HAJOB_PICTURES`, or else in the test's own directory.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from e2e.bootstrap.paths import CHECKOUT
from e2e.cluster.processes import MARKER
from tests.rigs.chromium import needs_chromium, open_tab

FAULTS = ("fault 1", "fault 2", "fault 3", "fault 4", "fault 5", "fault 6")
SECONDS = 840.0
RECORD = """(() => {
    window.seen = new Set();
    const look = () => {
        const state = document.querySelector('h1 .state')?.firstChild?.nextSibling?.textContent ?? '';
        const cells = [...document.querySelectorAll('.grid .cell')].map((cell) => cell.classList[1]).join(' ');
        window.seen.add(`${state}: ${cells}`);
    };
    new MutationObserver(look).observe(document, {subtree: true, childList: true, attributes: true});
    look();
})()"""
"""Notes each picture of the grid, with the state that stands above it."""


@pytest.mark.slow
@needs_chromium
@pytest.mark.timeout(900)
async def test_six_faults_are_seen_on_the_page(tmp_path: Path) -> None:
    surroundings = {name: value for name, value in os.environ.items() if name != MARKER}
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "e2e.demo", "--ui"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=CHECKOUT,
        env=surroundings,
        start_new_session=True,
    )
    assert demo.stdout is not None
    pictures = Path(os.environ.get("HAJOB_PICTURES") or tmp_path)
    said: list[str] = []
    try:
        async with asyncio.timeout(SECONDS), open_tab() as tab:
            await tab.resize(1400, 900)
            async for raw in demo.stdout:
                said.append(line := raw.decode())
                if "the page: " in line:
                    await tab.open_address(line.partition("the page: ")[2].strip())
                    await tab.wait_until("document.querySelector('.top')")
                    await tab.evaluate("location.hash = '#/jobs/default/quickstart'")
                    await tab.evaluate(RECORD)
                if any(fault in line for fault in FAULTS[1:]) or "letting the training end" in line:
                    await tab.take_picture(pictures / f"demo-{len(list(pictures.glob('demo-*')))}.png")
                if "letting the training end" in line:
                    # The page of a demo ends with it: what it shows is read before.
                    seen = await tab.evaluate("[...window.seen]")
                    rows = await tab.evaluate(
                        "[...document.querySelectorAll('.incidents .done')].map((row) => row.innerText)"
                    )
                    assert tab.complaints == []
    finally:
        if demo.returncode is None and not (said and said[-1].startswith("demo: ")):
            demo.terminate()
        await demo.wait()
    assert said[-1].strip() == "demo: 6 faults, 6 recovered, weights equal: yes", "".join(said)
    actions = [row.split()[0] for row in reversed(rows)]
    assert actions == ["InPlace", "Replace", "Shrink", "Expand", "Migrate", "InPlace"]
    assert all("recovered" in row for row in rows)
    _check_pictures(seen)


def _check_pictures(seen: list[str]) -> None:
    """The dramatic seconds look like it."""
    recovering = [cells.split() for state, _, cells in (one.partition(": ") for one in seen) if state == "Recovering"]
    lost = {cells.count("lost") for cells in recovering}
    assert {1, 2} <= lost, "a rank that was killed, and two of a node that was off"
    assert any(cells.count("stands") >= 6 for cells in recovering), "the others wait"
    assert any(one.startswith("Shrunk: ") and one.count("training") == 6 for one in seen), "six of eight train on"
    assert any(one.startswith("Migrating: ") and one.count("training") == 8 for one in seen), "none stands for a move"
