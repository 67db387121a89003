"""`kubectl hajob quarantine` and `breaker`: what is listed, what is written, what is refused."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

import pytest
import yaml

from hajob.cli import breaker, main, quarantine
from hajob.cli.cluster import ClusterError
from hajob.cli.objects import JOBS, QUARANTINES
from hajob.cli.output import plain_lines
from tests.rigs.command_objects import FakeCommandObjects

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def command(objects: FakeCommandObjects, *words: str) -> list[str]:
    said: list[str] = []
    arguments: argparse.Namespace = main.build_parser().parse_args(["quarantine", *words])
    assert quarantine.carry_out_action(arguments, objects, NOW, said.append) == 0
    return said


def test_a_node_is_kept_out_listed_and_let_in() -> None:
    objects = FakeCommandObjects()
    assert command(objects) == ["no node is in quarantine"]
    words = ("add", "n1", "--for", "2h", "--reason", "Maintenance", "--message", "new fans")
    assert command(objects, *words) == ["node n1 is in quarantine until 2026-11-22T14:00:00Z"]
    spec = objects.found[f"{QUARANTINES}/n1"]["spec"]
    assert (spec["nodeName"], spec["source"], spec["expireTime"]) == ("n1", "Admin", "2026-11-22T14:00:00Z")
    head, row = command(objects, "list")
    assert head.split() == ["NODE", "STATE", "SOURCE", "REASON", "UNTIL", "OFFENCES", "WHY"]
    assert row.split(maxsplit=6) == ["n1", "Active", "Admin", "Maintenance", "2026-11-22T14:00:00Z", "0", "new fans"]
    assert command(objects, "list", "-o", "name") == ["nodequarantines.training.hajob.io/n1"]
    told = yaml.safe_load(command(objects, "list", "-o", "yaml")[0])
    assert told[0] == json.loads(command(objects, "list", "-o", "json")[0])[0]
    assert (told[0]["node"], told[0]["reason"], told[0]["offences"]) == ("n1", "Maintenance", "0")
    assert command(objects, "release", "n1") == ["node n1 is released"]
    assert command(objects, "list")[1].split()[1:2] == ["Released"]


def test_a_release_names_the_faults_that_may_stand() -> None:
    known = {"metadata": {"name": "n1"}, "spec": {"nodeName": "n1", "faults": ["Ascend910-3/40F84E00"]}}
    objects = FakeCommandObjects(**{f"{QUARANTINES}/n1": known})
    assert command(objects, "release", "n1") == [
        "node n1 is released; pardoned until they are over: Ascend910-3/40F84E00"
    ]
    head, row = command(objects, "list")
    assert row[head.index("UNTIL") :].startswith("its pardoned faults are gone")


def test_a_node_that_is_not_in_quarantine_can_be_pardoned() -> None:
    """A fault may harm jobs and keep nothing off, or the quarantine may be over already."""
    objects = FakeCommandObjects()
    (told,) = command(objects, "release", "n1")
    assert told == "node n1 is not in quarantine; the faults that it has now are pardoned until they are over"
    made = objects.found[f"{QUARANTINES}/n1"]
    assert made["spec"]["releaseTime"] == "2026-11-22T12:00:00Z"
    made["status"] = {"state": "Over"}
    command(objects, "release", "n1")
    assert made["status"]["state"] == "Active", "the operator takes it as a release that it has not seen"


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ClusterError, match="there is no node n2"):
        command(FakeCommandObjects(), "release", "n2")
    with pytest.raises(ClusterError, match="there is no node n2"):
        command(FakeCommandObjects(), "add", "n2")


@pytest.mark.parametrize("told", ["2", "h", "-1h", "1.5h", "1w"])
def test_a_duration_that_is_none_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        quarantine.parse_duration(told)


def test_an_admin_believes_what_was_held_back() -> None:
    objects = FakeCommandObjects()
    breaker.believe_faults(objects, "hajob-system", NOW)
    path = "/api/v1/namespaces/hajob-system/configmaps/hajob-faults"
    made = objects.found[path]["metadata"]
    assert made["labels"] == {"training.hajob.io/settings": "faults"}
    assert made["annotations"] == {"training.hajob.io/believe-faults": "2026-11-22T12:00:00Z"}
    breaker.believe_faults(objects, "hajob-system", NOW.replace(hour=13))
    assert objects.found[path]["metadata"]["annotations"] == {
        "training.hajob.io/believe-faults": "2026-11-22T13:00:00Z"
    }


def test_jobs_that_are_held_are_named() -> None:
    told = {"type": "Held", "status": "True", "reason": "BreakerOpen", "message": "4 of 10 nodes were reported faulty"}
    held = {"metadata": {"namespace": "a", "name": "b"}, "status": {"conditions": [told]}}
    free = {**held, "status": {"conditions": [{**told, "status": "False", "reason": "NotHeld"}]}}
    known = (FakeCommandObjects(**{f"{JOBS}/b": held}), FakeCommandObjects(**{f"{JOBS}/b": free}), FakeCommandObjects())
    answers = [breaker.answer_of_breaker(objects) for objects in known]
    said = [line for answer in answers for line in plain_lines(answer.told)]
    assert [answer.data["open"] for answer in answers] == [True, False, None]
    assert answers[0].names == ["hatrainingjobs.training.hajob.io/b"]
    assert said == [
        "a/b: 4 of 10 nodes were reported faulty",
        "closed: Hajob acts on faults of nodes and chips",
        "no job says whether it is open: kubectl hajob doctor asks the operator",
    ]


@pytest.mark.parametrize("words", [["-o", "json"], ["list", "-o", "json"], ["-o", "json", "list"]])
def test_the_format_may_stand_before_the_action(words: list[str]) -> None:
    assert main.build_parser().parse_args(["quarantine", *words]).output == "json"
    assert main.build_parser().parse_args(["quarantine"]).output == "text"
