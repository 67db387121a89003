"""The page in a real browser, before a cluster in memory: what people see, type and hover, in themes and languages.

Pictures of every view are kept in `$HAJOB_PICTURES`, or else in the test's own directory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hajob.api.base import Json
from hajob.plan.state import JobPhase
from tests.rigs.chromium import Tab, needs_chromium, open_tab
from tests.rigs.page_town import PageTown, chip_node, open_town
from tests.rigs.team_town import ALICE, open_team
from tests.rigs.told_job import NAME, NAMESPACE, told_job
from tests.rigs.told_server import READY, rank_pod_object

pytestmark = [needs_chromium, pytest.mark.timeout(240)]

HOSTILE = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>{{7*7}}&lt;b&gt;'
JOB = f"#/jobs/{NAMESPACE}/{NAME}"


def job_objects(*pods: Json, job: Json | None = None) -> list[tuple[str, Json]]:
    nodes = [chip_node(f"node-{number}") for number in range(5)]
    ready = pods or tuple(rank_pod_object(number, **READY) for number in range(4))
    return [
        ("hatrainingjobs", job or told_job()),
        *(("pods", pod) for pod in ready),
        *(("nodes", node) for node in nodes),
    ]


@asynccontextmanager
async def browsed(*objects: tuple[str, Json]) -> AsyncIterator[tuple[PageTown, Tab]]:
    """The page of such a cluster, open in a browser."""
    async with open_town(*objects) as town, open_tab() as tab:
        await tab.resize(1400, 900)
        await tab.evaluate("0")
        await tab.open_address(town.address)
        await tab.wait_until("document.querySelector('.top')")
        yield town, tab
        assert tab.complaints == []


def pictures(tmp_path: Path) -> Path:
    """Where pictures are kept."""
    return Path(os.environ.get("HAJOB_PICTURES") or tmp_path)


async def go_to(tab: Tab, place: str) -> None:
    """Follow a link of the page."""
    await tab.evaluate(f"location.hash = {place!r}")


async def test_jobs_nodes_and_a_job_are_shown(tmp_path: Path) -> None:
    async with browsed(*job_objects()) as (_, tab):
        await tab.wait_until("document.querySelector('.jobs .row')")
        assert f"{NAMESPACE}/\n{NAME}" in await tab.text(".jobs") or f"{NAMESPACE}/{NAME}" in await tab.text(".jobs")
        await tab.take_picture(pictures(tmp_path) / "jobs-light.png")
        await go_to(tab, JOB)
        await tab.wait_until("document.querySelectorAll('.card').length === 4 && document.querySelector('.u-over')")
        shown = await tab.text("main")
        assert "node-0 fell silent" in shown
        assert "6.2 s" in shown
        await tab.take_picture(pictures(tmp_path) / "job-light.png")
        await go_to(tab, "#/nodes")
        await tab.wait_until("document.querySelectorAll('.nodes .row').length === 5")
        await tab.take_picture(pictures(tmp_path) / "nodes-light.png")


async def test_dark_and_chinese(tmp_path: Path) -> None:
    async with browsed(*job_objects()) as (_, tab):
        await tab.press("t")
        await tab.press("l")
        await tab.wait_until(
            "document.documentElement.dataset.theme === 'dark' && document.documentElement.lang === 'zh-CN'"
        )
        await tab.wait_until("document.querySelector('.jobs .row')")
        assert "作业" in await tab.text(".top")
        await tab.take_picture(pictures(tmp_path) / "jobs-dark-zh.png")
        await go_to(tab, JOB)
        await tab.wait_until("document.querySelectorAll('.card').length === 4 && document.querySelector('.u-over')")
        await tab.evaluate("document.querySelector('.card').click()")
        await tab.wait_until("document.querySelector('.loss .verdict')")
        await tab.evaluate("document.querySelector('.incidents details').open = true")
        assert "节点与 Rank" in await tab.text("main")
        await tab.take_picture(pictures(tmp_path) / "job-dark-zh.png")


async def test_what_happens_is_seen_without_a_reload() -> None:
    async with browsed(*job_objects()) as (town, tab):
        await go_to(tab, JOB)
        await tab.wait_until("document.querySelectorAll('.cell.training').length > 7")
        town.put("hatrainingjobs", told_job(JobPhase.GATHERING))
        town.remove("pods", f"{NAME}-2-aa")
        await tab.wait_until("document.querySelectorAll('.grid .cell.lost').length === 2")
        await tab.wait_until("document.querySelectorAll('.grid .cell.stands').length === 6")
        town.put("pods", rank_pod_object(2, phase="Pending"))
        await tab.wait_until("document.querySelectorAll('.grid .cell.starts').length === 2")
        town.put("pods", rank_pod_object(2, **READY))
        town.put("hatrainingjobs", told_job(step=213))
        await tab.wait_until("document.querySelectorAll('.grid .cell.training').length === 8")
        await tab.wait_until("document.querySelector('.facts').innerText.includes('213')")


async def test_copies_light_up_and_a_lost_node_is_answered() -> None:
    async with browsed(*job_objects()) as (_, tab):
        await go_to(tab, JOB)
        await tab.wait_until("document.querySelector('[data-rank=\"0\"]')?.title.includes('4')")
        hover = "new PointerEvent('pointerover', {bubbles: true})"
        lit = "[...document.querySelectorAll('.grid .lit')].map((cell) => cell.dataset.rank)"
        at_once = await tab.evaluate(f"document.querySelector('[data-rank=\"0\"]').dispatchEvent({hover}) && {lit}")
        assert at_once == ["4"], "rank 4 holds the same part of the optimizer"
        await tab.evaluate("document.querySelectorAll('.card')[3].click()")
        await tab.wait_until("document.querySelector('.loss .verdict')")
        told = await tab.text(".loss")
        assert "Replace" in told
        assert "nodes free now: 5" in told


async def test_text_of_users_stays_text() -> None:
    job = told_job()
    job["status"]["incidents"][0]["message"] = job["status"]["summary"]["reason"] = HOSTILE
    job["status"]["incidents"][0]["cause"]["message"] = HOSTILE
    job["status"]["protection"] = {"unmet": [{"name": "FreeNode", "message": HOSTILE, "remedy": HOSTILE}]}
    pods = [rank_pod_object(number, **READY) for number in range(4)]
    pods[1]["status"] = {"phase": "Failed", "reason": HOSTILE, "message": HOSTILE}
    async with browsed(*job_objects(*pods, job=job)) as (_, tab):
        await tab.wait_until("document.querySelector('.jobs .row')")
        assert "{{7*7}}" in await tab.text(".jobs")
        await go_to(tab, JOB)
        await tab.wait_until("document.querySelector('.incidents summary')")
        await tab.evaluate("document.querySelector('.incidents details').open = true")
        assert await tab.evaluate("document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in await tab.evaluate("document.title")
        assert HOSTILE in await tab.evaluate("document.querySelector('.incidents').textContent")


async def test_keys_are_enough() -> None:
    async with browsed(*job_objects()) as (_, tab):
        await tab.wait_until("document.querySelector('.jobs .row')")
        await tab.press("j")
        await tab.press("Enter")
        await tab.wait_until("document.querySelectorAll('.card').length === 4")
        await tab.press("j")
        await tab.press("Enter")
        await tab.wait_until("document.querySelector('.loss .verdict')")
        await tab.press("Escape")
        await tab.wait_until("!document.querySelector('.loss')")
        await tab.press("Escape")
        await tab.wait_until("document.querySelector('.jobs .row')")
        await tab.press("2")
        await tab.wait_until("document.querySelector('.nodes .row')")
        await tab.press("?")
        await tab.wait_until("document.querySelector('dialog').open")


async def test_a_team_logs_in_and_out(tmp_path: Path) -> None:
    async with open_team() as (town, _), open_tab() as tab:
        await tab.resize(1000, 700)
        await tab.open_address(town.url("/"))
        await tab.wait_until("document.querySelector('#token')")
        await tab.evaluate("document.querySelector('#token').value = 'wrong'; document.forms[0].requestSubmit()")
        await tab.wait_until("document.querySelector('.notice.bad')")
        await tab.take_picture(pictures(tmp_path) / "login.png")
        await tab.evaluate(f"document.querySelector('#token').value = {ALICE!r}; document.forms[0].requestSubmit()")
        await tab.wait_until("document.querySelector('.jobs .row')")
        assert ALICE not in await tab.evaluate("document.cookie + location.href")
        await tab.evaluate("document.querySelector('form[action=logout]').requestSubmit()")
        await tab.wait_until("document.querySelector('#token')")
        assert town.ended == ["wrong", ALICE]


async def test_a_page_without_its_server_says_so() -> None:
    async with open_tab() as tab:
        async with open_town(*job_objects()) as town:
            await tab.open_address(town.address)
            await tab.wait_until("document.querySelector('.jobs .row')")
        await tab.wait_until("document.querySelector('.notice.bad') && document.querySelector('main.old')")


async def test_the_key_leaves_the_address() -> None:
    async with browsed(*job_objects()) as (town, tab):
        assert town.door.key not in await tab.evaluate("location.href + document.cookie")
