"""Pictures of a terminal for the pages: what three commands say of a training that broke, drawn by the commands' code.

The job is made up, and its status is built as the operator builds it.

Run as `python -m release.generate.pictures [--check]`.
"""

from __future__ import annotations

import html
import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import yaml
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hajob.api import constants as names
from hajob.api.base import Json
from hajob.api.job import HATrainingJob
from hajob.cli import language
from hajob.cli.objects import path_of_job
from hajob.cli.output import Answer, as_rich_block
from hajob.cli.status import screen_of_job
from hajob.cli.timeline import history_of_job
from hajob.cli.why import explanation_of_job
from hajob.domain.actions import Action
from hajob.domain.cause_words import report_of_cause
from hajob.domain.facts import FactKind, Origin, Source
from hajob.domain.goodput import Account, Bucket
from hajob.domain.incidents import Cause, Incident, IncidentOutcome, Purpose, RefusedAction
from hajob.domain.timeline import Mark
from hajob.job.status.build import Snapshot, build_goodput, build_status
from hajob.job.status.incidents import Record
from hajob.plan.state import JobPhase, JobState
from hajob.sources.pod import PodView
from release.generate.files import ROOT, write_or_check

_NAMESPACE: Final = "team"
_UID: Final = "5c1b8a52-6d0e-4a5d-9a3f-2f1d7c0e9b11"
_BEGAN_MS: Final = 1_767_254_402_000
"""2026-01-01 08:00:02 UTC."""
_MINUTE_MS: Final = 60_000
_COLUMNS: Final = 110
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""A picture in a page may load nothing: the reader's own monospaced font is taken."""
_ERROR: Final = "KeyError: 'no token 151936 in the vocabulary'"
Command = Callable[["_Server", str, str, int], Answer]
_COMMANDS: Final[Mapping[str, Command]] = {
    "status": screen_of_job,
    "why": explanation_of_job,
    "timeline": history_of_job,
}


class _Server:
    """Has the job and nothing else: a failed one has no pods, and its Events are gone after an hour."""

    def __init__(self, job: Json) -> None:
        self._path, self._job = path_of_job(_NAMESPACE, job["metadata"]["name"]), job

    def find_object(self, path: str) -> Json | None:
        return self._job if path == self._path else {"items": []}


def broken_job() -> Json:
    """Return a job that survived a lost node, and failed by its own program later."""
    raw = yaml.safe_load((ROOT / "examples/mindspeed-llm-a2.yaml").read_text(encoding="utf-8"))
    created = datetime.fromtimestamp(_BEGAN_MS / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    raw["metadata"] |= {"uid": _UID, "namespace": _NAMESPACE, "creationTimestamp": created, "generation": 1}
    job = HATrainingJob.from_object(raw)
    account = Account(_BEGAN_MS).switch_bucket(Bucket.START_UP, _BEGAN_MS + 8_000)
    account = account.book_training(3_300, _BEGAN_MS + 108_000)
    status = job.status
    for at_ms, phase, fields in _history_of_broken_job():
        state = JobState(phase=phase, attempt=1, restarts_program=3 if phase is JobPhase.FAILED else 0)
        goodput = build_goodput(account, at_ms)
        told = job.model_copy(update={"status": status})
        status = build_status(Snapshot(told, state, 1, at_ms, goodput=goodput, **fields))
    metadata = {**raw["metadata"]}
    return {**raw, "metadata": metadata, "status": status.to_json()}


def _history_of_broken_job() -> Iterator[tuple[int, JobPhase, dict[str, Any]]]:
    """Yield the moments at which its status is built: when, in which phase, and what is known then."""
    yield _BEGAN_MS + 2 * _MINUTE_MS, JobPhase.RUNNING, {"step": 1}
    silent = Incident(
        *(2, 2, 1, Purpose.FAULT, Origin.INFRASTRUCTURE, Action.REPLACE),
        Cause(FactKind.AGENT_SILENT, code="AgentSilent", node_name="node-3", first_rank=16, num_ranks=8, step=2_710),
        opened_ms=_BEGAN_MS + 66 * _MINUTE_MS,
        replaced_nodes=(2,),
        refused=(RefusedAction(Action.RETRY, ("PodAlive",)), RefusedAction(Action.IN_PLACE, ("PodAlive",))),
    )
    marks = {Mark.NOTICED: 3_200, Mark.DECIDED: 3_300, Mark.STARTED: 5_100, Mark.READY: 5_600, Mark.RESUMED: 6_200}
    moved = PodView(_NAMESPACE, "qwen3-8b-2-aa", "u", _UID, names.ROLE_RANK, 2, 2, phase="Running", node_name="node-5")
    known = {"step": 2_711, "step_ms": 1_420, "pods": [moved]}
    yield from _closed(silent, marks, IncidentOutcome.RECOVERED, JobPhase.RUNNING, known)
    raised = Incident(
        *(3, 6, 1, Purpose.FAULT, Origin.PROGRAM, Action.RESTART),
        Cause(
            *(FactKind.PROCESS_EXITED, Source.AGENT, "exit 1", "node-2", 9, 1),
            message=f'Traceback (most recent call last):\n  File "data/tokens.py", line 88, in encode\n{_ERROR}',
            step=3_377,
        ),
        opened_ms=_BEGAN_MS + 82 * _MINUTE_MS,
        escalated_from=(Action.IN_PLACE, Action.CHECKPOINT),
        refused=(RefusedAction(Action.RETRY, ("ProcessAlive",)),),
        restarts=3,
    )
    failed = {
        "step": 3_377,
        "step_ms": 1_420,
        "checkpoint_step": 3_000,
        "failed_reason": "NoProgress",
        "failed_message": report_of_cause(raised.cause, "rank 9 has failed 4 times at step 3377 without progress"),
    }
    yield from _closed(raised, {Mark.NOTICED: 400}, IncidentOutcome.FAILED, JobPhase.FAILED, failed)


def _closed(
    incident: Incident, marks: Mapping[Mark, int], outcome: IncidentOutcome, phase: JobPhase, known: dict[str, Any]
) -> Iterator[tuple[int, JobPhase, dict[str, Any]]]:
    """Yield the moment at which an incident is over; `marks`: milliseconds after the last step before it."""
    at = {mark: incident.opened_ms + milliseconds for mark, milliseconds in marks.items()}
    record = Record(incident, at | {Mark.STEP_BEFORE: incident.opened_ms}, outcome)
    over = incident.opened_ms + (7_000 if outcome is IncidentOutcome.RECOVERED else 9 * _MINUTE_MS)
    yield over, phase, {**known, "record": record}


def picture_of_command(command: str, speaks: str) -> str:
    """Return what a command prints of the broken job as an SVG; `speaks`: a language of HAJOB_LANG."""
    job = broken_job()
    name = job["metadata"]["name"]
    os.environ[language.VARIABLE] = speaks
    language.catalogue_of_person.cache_clear()
    answer = _COMMANDS[command](_Server(job), _NAMESPACE, name, _BEGAN_MS + 95 * _MINUTE_MS)
    typed = f"kubectl hajob {command} {name} -n {_NAMESPACE}"
    console = Console(
        record=True,
        file=io.StringIO(),
        width=_COLUMNS,
        height=100,  # with both sizes and no_color the environment changes nothing
        force_terminal=True,
        color_system="truecolor",
        no_color=False,
        legacy_windows=False,
        highlight=False,
    )
    console.print(Text(f"$ {typed}", style="dim"))
    for block in answer.told:
        console.print(as_rich_block(block))
    drawn = _FONTS.sub("", console.export_svg(title=typed, unique_id=f"{command}-{speaks}"))
    drawn = drawn.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    return _TEXT.sub(_with_its_own_width, drawn)


_TEXT: Final = re.compile(r'textLength="[\d.]+"([^>]*)>([^<]*)</text>')
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_CELL: Final = 12.2
"""Width of a character in rich's pictures; its length of a text counts characters, and a Chinese one has two cells."""


def _with_its_own_width(found: re.Match[str]) -> str:
    shown = html.unescape(found[2]).rstrip(NO_BREAK)
    content = html.escape(shown, quote=False).replace(NO_BREAK, "&#160;")
    return f'textLength="{_CELL * cell_len(shown):g}"{found[1]}>{content}</text>'


def main(arguments: list[str] | None = None) -> int:
    """Write the pictures, or say whether they are current."""
    asked = os.environ.get(language.VARIABLE)
    pictures = {
        f"docs/pictures/{command}{ending}.svg": picture_of_command(command, speaks)
        for speaks, ending in ((language.ENGLISH, ""), (language.CHINESE, "-zh"))
        for command in _COMMANDS
    }
    os.environ.pop(language.VARIABLE) if asked is None else os.environ.update({language.VARIABLE: asked})
    language.catalogue_of_person.cache_clear()
    return write_or_check("release.generate.pictures", pictures, arguments)


if __name__ == "__main__":
    sys.exit(main())
