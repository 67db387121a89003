"""Every stage of an action at which a controller can be lost has a scenario: docs/protocols/mindio.md §11.5."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rigs.names_of_tests import NAMES_IN_THE_PROJECT
from trainer_sidecar.coordinator.takeover.resumption import ROWS as RESUMPTIONS
from trainer_sidecar.coordinator.takeover.resumption import Resumption

ROOT = Path(__file__).resolve().parents[3]
SECTION = (ROOT / "docs/protocols/mindio.md").read_text().partition("**11.5**")[2].partition("\n**11.6**")[0]
ROWS = [line.split("|")[1].strip() for line in SECTION.splitlines() if line.startswith("| ")][2:]

SCENARIOS = {
    "nothing: they train": (
        "test_faults_before_and_after_a_lost_controller_are_recovered",
        "test_a_repair_that_is_through_is_not_repeated",
        "test_another_pod_takes_over_a_training",
    ),
    "lock (12)": ("test_a_repair_in_the_middle_begins_anew", "test_another_pod_saves_without_ranks_of_a_lost_pod"),
    "stop, clean, rebuild, rollback (18, 20, 32, 24)": (
        "test_a_repair_goes_on_with_another_controller",
        "test_a_retry_goes_on_with_another_controller",
        "test_lost_in_every_handler_of_a_repair",
        "test_lost_in_a_replacement",
    ),
    "repair (22), and the successors have, too": (
        "test_a_repair_goes_on_with_another_controller",
        "test_a_handler_that_runs_is_waited_for",
    ),
    "repair, and a successor is gone": ("test_a_repair_that_has_lost_its_successor_is_saved",),
    "not yet, and repair (21) was given to who gives its data, not to who takes them": (
        "test_a_repair_begun_on_one_side_is_told",
    ),
    "save (5)": ("test_a_save_goes_on_with_another_controller", "test_lost_while_it_is_saved"),
    "rename (8)": ("test_what_no_other_can_go_on_with_is_told",),
    "pause (14), and the last word was to pause (13; to go on, 15, has the same answer)": (
        "test_held_ranks_go_on_with_another_controller",
        "test_a_death_among_held_ranks_is_stopped_at_once",
        "test_lost_while_every_rank_is_held",
    ),
    "pause (14), or any of a hot switch (32, 22, 24), and second processes are about to take over": (
        "test_lost_in_the_middle_of_a_move_it_is_told",
        "test_ranks_that_were_stopped_for_a_move_start_anew",
    ),
    "downgrade (30), upgrade (34, 36, 38)": (
        "test_a_shrink_goes_on_with_another_controller",
        "test_growing_goes_on_with_another_controller",
        "test_who_has_taken_part_in_growing_starts_once_more",
        "test_lost_while_it_shrinks_is_small_and_grows",
    ),
    "nothing, and second processes had registered": (
        "test_a_move_goes_on_with_another_controller",
        "test_second_processes_that_had_registered_start_anew",
        "test_lost_in_a_move",
    ),
    "nothing, and ranks had been left out": (
        "test_a_shrunk_job_grows_under_another_controller",
        "test_a_shrunk_job_stays_shrunk_under_another_controller",
    ),
}


def test_every_stage_has_a_scenario() -> None:
    assert list(SCENARIOS) == ROWS


def test_the_scenarios_are_there() -> None:
    assert {name for names in SCENARIOS.values() for name in names} - NAMES_IN_THE_PROJECT == set()


def test_what_cannot_be_gone_on_with_says_why() -> None:
    hopeless = [row for row in RESUMPTIONS.values() if row.outcome is Resumption.IMPOSSIBLE]
    assert len(hopeless) == len(re.findall(r"^\| [^|]*\| nothing: ", SECTION, re.MULTILINE))
