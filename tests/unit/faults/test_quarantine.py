"""Who is kept out, why, for how long, and what an admin's word does to it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from hajob.api.quarantine import MAX_FAULTS, NodeMetadata, NodeQuarantine, NodeQuarantineSpec, QuarantineState
from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.faults.rules.quarantine import (
    FREQUENT,
    QuarantineSettings,
    is_pardoned,
    keeps_node_out,
    next_change_ms,
    next_quarantine,
    pardoned_faults,
)

SETTINGS = QuarantineSettings()
START = 1_795_255_200_000
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
DAY = 24 * HOUR


def fact(code: str = "40F84E00", level: Level = Level.SEPARATE, *, frequent: bool = False) -> ClusterFact:
    kind, message = kind_of_level(level), f"chip 3: {code}"
    name = f"node/n/chip/Ascend910-3/{code}"
    return ClusterFact(
        name,
        Source.DEVICE,
        kind,
        "n",
        "Ascend910-3",
        code,
        level,
        harms=harms_job(level),
        message=message,
        frequent=frequent,
    )


class Life:
    """The quarantine of one node through time; `stands` is what is told of the node."""

    def __init__(self, *, counts: bool = True) -> None:
        self.known: NodeQuarantine | None = None
        self.counts = counts
        self.now = START

    def at(self, passed_ms: int, *stands: ClusterFact) -> bool:
        """Whether the node is kept out so long later."""
        self.now += passed_ms
        self.known = next_quarantine("n", self.known, stands, self.now, SETTINGS, counts=lambda _: self.counts)
        return keeps_node_out(self.known, self.now)

    @property
    def spec(self) -> NodeQuarantineSpec:
        assert self.known is not None
        return self.known.spec

    @property
    def offences(self) -> int:
        return self.known.status.offences if self.known is not None else 0

    def pardons(self, *facts: ClusterFact) -> list[bool]:
        return [is_pardoned(one, pardoned_faults(self.known, self.now)) for one in facts]

    def release(self) -> None:
        assert self.known is not None
        spec = self.known.spec.model_copy(update={"release_time": datetime.fromtimestamp(self.now / 1000, UTC)})
        self.known = self.known.model_copy(update={"spec": spec})


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


def test_a_node_without_faults_has_no_quarantine() -> None:
    assert (Life().at(0), Life().known) == (False, None)


def test_an_isolating_fault_says_who_and_why() -> None:
    life = Life()
    assert life.at(0, fact())
    assert (life.spec.source, life.spec.reason, life.spec.message) == ("Device", "SeparateNPU", "chip 3: 40F84E00")
    assert (life.spec.faults, life.spec.expire_time, life.offences) == (("Ascend910-3/40F84E00",), None, 1)


def test_it_lasts_as_long_as_the_fault_and_ten_minutes() -> None:
    life = Life()
    life.at(0, fact())
    assert life.at(5 * DAY, fact())
    assert life.at(MINUTE)
    assert life.at(9 * MINUTE)
    assert not life.at(MINUTE)
    assert life.known is not None
    assert life.known.status.state is QuarantineState.OVER


def test_each_offence_doubles_the_time_up_to_a_day() -> None:
    life, lasted = Life(), []
    for _ in range(10):
        life.at(0, fact())
        life.at(SECOND)
        assert life.known is not None
        begin = life.now
        due = next_change_ms(life.known, SETTINGS)
        assert due is not None
        lasted.append((due - begin) // SECOND)
        life.at(due - begin)
    assert lasted[:4] == [600, 1200, 2400, 4800]
    assert lasted[-1] == SETTINGS.longest_seconds


def test_a_fault_that_flaps_within_its_time_is_an_offence() -> None:
    life = Life()
    life.at(0, fact())
    life.at(SECOND)
    assert life.at(SECOND, fact())
    assert (life.offences, life.spec.expire_time) == (2, None)


def test_quiet_days_take_offences_away_until_nothing_is_left() -> None:
    life = Life()
    for _ in range(3):
        life.at(0, fact())
        life.at(SECOND)
    life.at(HOUR)
    assert not life.at(0)
    assert life.known is not None
    life.at(2 * DAY)
    life.at(0, fact())
    assert life.offences == 2  # of three, two were forgotten; this is one more
    life.at(SECOND)
    life.at(HOUR)
    life.at(5 * DAY)
    assert life.known is None


def test_a_frequent_fault_isolates_for_two_days() -> None:
    life = Life()
    life.at(0, fact(level=Level.MANUALLY_SEPARATE, frequent=True))
    assert life.spec.reason == FREQUENT
    assert life.at(MINUTE)
    assert life.at(47 * HOUR)
    assert not life.at(HOUR)


def test_a_released_node_is_in_though_its_fault_stands() -> None:
    life = Life()
    life.at(0, fact())
    life.release()
    assert not life.at(MINUTE, fact())
    assert life.known is not None
    assert life.known.status.state is QuarantineState.RELEASED
    assert not life.at(DAY, fact())


def test_another_fault_keeps_a_released_node_out_again() -> None:
    life = Life()
    life.at(0, fact())
    life.release()
    life.at(MINUTE, fact())
    assert life.at(MINUTE, fact(), fact("other"))
    assert life.spec.faults == ("Ascend910-3/other",)
    assert (life.spec.release_time, life.offences) == (None, 1), "counting begins at 0"


def test_a_fault_that_comes_anew_after_a_release_counts() -> None:
    life = Life()
    life.at(0, fact())
    life.release()
    life.at(MINUTE, fact())
    assert not life.at(MINUTE)
    assert life.at(MINUTE, fact())
    assert life.offences == 1


def test_a_release_pardons_what_stands_until_it_is_over() -> None:
    """Also what only harms a job there, and more faults than the list holds; what is over is pardoned no more."""
    life, harm = Life(), fact("harm", Level.RESTART_BUSINESS)
    life.at(0, fact())
    life.release()
    life.at(MINUTE, fact(), harm)
    assert life.pardons(fact(), harm, fact("other")) == [True, True, False]
    life.at(MINUTE, harm)
    assert life.pardons(fact(), harm) == [False, True]
    life.at(MINUTE)
    assert (life.known, life.pardons(harm)) == (None, [False])


def test_more_faults_than_fit_are_pardoned_as_one() -> None:
    life, many = Life(), [fact(f"c{number}") for number in range(MAX_FAULTS + 1)]
    life.at(0, *many)
    life.release()
    assert not life.at(MINUTE, *many)
    assert all(life.pardons(*many))
    assert not life.at(DAY, *many)
    life.at(MINUTE)
    assert life.known is None


def test_a_release_of_an_admins_quarantine_pardons_too() -> None:
    life = by_hand()
    life.release()
    assert not life.at(MINUTE, fact())
    assert life.pardons(fact()) == [True]
    assert not life.at(DAY, fact())


def test_what_is_not_ready_or_cordoned_is_never_pardoned() -> None:
    assert not is_pardoned(dataclasses.replace(fact(), level=None), ("*", "Ascend910-3/40F84E00"))


def test_what_does_not_count_only_prolongs_a_quarantine() -> None:
    idle = Life(counts=False)
    assert not idle.at(0, fact())
    used = Life()
    used.at(0, fact())
    used.counts = False
    assert used.at(2 * DAY, fact()), "the pod has left, the fault has not"


def by_hand(**spec: object) -> Life:
    life = Life()
    made = NodeQuarantineSpec.model_validate({"nodeName": "n", "reason": "Maintenance", **spec})
    life.known = NodeQuarantine(metadata=NodeMetadata(name="n"), spec=made)
    return life


def test_an_admins_quarantine_lasts_until_its_time() -> None:
    life = by_hand(expireTime=_iso(START + HOUR))
    assert life.at(HOUR - SECOND)
    assert life.spec.reason == "Maintenance"
    assert (life.at(SECOND), life.known) == (False, None)


def test_an_admins_quarantine_without_a_time_stays() -> None:
    life = by_hand()
    assert life.at(30 * DAY)
    life.release()
    assert (life.at(0), life.known) == (False, None)


@given(st.lists(st.tuples(st.integers(0, 2 * DAY), st.booleans()), max_size=15))
def test_asking_twice_changes_nothing(history: list[tuple[int, bool]]) -> None:
    life = Life()
    for passed, stands in history:
        life.at(passed, *([fact()] if stands else []))
        before = life.known
        life.at(0, *([fact()] if stands else []))
        assert life.known == before or (before is not None and not stands and life.offences <= before.status.offences)


@given(st.lists(st.tuples(st.integers(0, DAY), st.booleans()), max_size=15))
def test_a_standing_fault_always_keeps_out(history: list[tuple[int, bool]]) -> None:
    life = Life()
    for passed, stands in history:
        kept_out = life.at(passed, *([fact()] if stands else []))
        assert kept_out or not stands
