"""Which faults stand, which of them a job hears of and when, and when nobody is believed."""

from __future__ import annotations

import dataclasses
import gc
import time

from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.facts import Source
from hajob.domain.hardware import ClusterFact, Level, harms_job, kind_of_level
from hajob.faults.rules.cluster_faults import ClusterFaults
from hajob.faults.rules.filters import LinkFault
from hajob.faults.rules.store import FaultStore
from hajob.sources.reading import Reading, Terms

NODES = [f"n{number}" for number in range(10)]


def fact(code: str = "c", level: Level = Level.SEPARATE, node: str = "n1", device: str = "Ascend910-0") -> ClusterFact:
    name = f"node/{node}/chip/{device}/{code}"
    kind = kind_of_level(level)
    return ClusterFact(name, Source.DEVICE, kind, node, device, code, level, harms=harms_job(level), message=code)


def reading(*facts: ClusterFact, over: tuple[str, ...] = ()) -> Reading:
    return Reading(Terms(0), facts=list(facts), over=list(over))


def heard(faults: ClusterFaults, now_ms: int, node: str = "n1") -> list[tuple[str, Level | None]]:
    return [(one.code, one.level) for one in faults.faults_on_node(node, now_ms)]


# ------------------------------------------------------------------ store


def test_a_fault_appears_once_and_goes_once() -> None:
    store = FaultStore()
    assert store.store_report("a", reading(fact())).appeared == (fact(),)
    assert store.store_report("a", reading(fact())).affected_nodes == frozenset()
    assert store.store_report("a", reading()).withdrawn == (fact(),)
    assert (store.faults_on_node("n1"), len(store)) == ((), 0)


def test_a_fault_stands_while_one_object_tells_it() -> None:
    store = FaultStore()
    store.store_report("a", reading(fact()))
    assert store.store_report("b", reading(fact())).appeared == ()
    assert store.forget_object("a").withdrawn == ()
    assert store.forget_object("b").withdrawn == (fact(),)


def since(store: FaultStore) -> list[int | None]:
    return [one.since_ms for one in store.faults_on_node("n1")]


def test_noded_that_writes_again_tells_no_new_fault() -> None:
    store, told = FaultStore(), dataclasses.replace(fact(), source=Source.NODE_HARDWARE)
    store.store_report("a", reading(dataclasses.replace(told, since_ms=1000)))
    store.store_report("a", reading(dataclasses.replace(told, since_ms=2000)))
    assert since(store) == [1000]
    store.forget_object("a")
    store.store_report("a", reading(dataclasses.replace(told, since_ms=3000)))
    assert since(store) == [3000]


def test_a_teller_without_a_time_makes_no_other_fault() -> None:
    store = FaultStore()
    store.store_report("a", reading(dataclasses.replace(fact(), since_ms=1000)))
    store.store_report("b", reading(fact()))
    store.forget_object("a")
    assert since(store) == [1000]


def test_a_fault_that_has_come_anew_has_a_new_beginning() -> None:
    store = FaultStore()
    store.store_report("a", reading(dataclasses.replace(fact(), since_ms=1000)))
    store.store_report("a", reading(dataclasses.replace(fact(), since_ms=2000)))
    assert since(store) == [2000]


def test_the_worse_word_counts() -> None:
    store = FaultStore()
    store.store_report("a", reading(fact(level=Level.SUB_HEALTH)))
    (worse,) = store.store_report("b", reading(fact(level=Level.SEPARATE))).appeared
    assert worse.level is Level.SEPARATE
    (milder,) = store.forget_object("b").appeared
    assert milder.level is Level.SUB_HEALTH


def test_a_message_stands_until_it_is_over() -> None:
    store = FaultStore()
    store.store_report("m", reading(fact("a")), keeps=True)
    store.store_report("m", reading(fact("b")), keeps=True)
    assert {one.code for one in store.faults_on_node("n1")} == {"a", "b"}
    over = store.store_report("m", reading(over=(fact("a").id,)), keeps=True)
    assert [one.code for one in over.withdrawn] == ["a"]


def test_what_is_over_is_over_for_every_teller() -> None:
    store = FaultStore()
    store.store_report("m1", reading(fact()), keeps=True)
    store.store_report("m2", reading(fact()), keeps=True)
    assert store.store_report("m1", reading(over=(fact().id,)), keeps=True).withdrawn == (fact(),)
    assert store.store_report("m2", reading(), keeps=True).affected_nodes == frozenset()


def test_nodes_with_isolated_chips_are_kept_out() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("a", reading(fact(level=Level.PRE_SEPARATE), fact(level=Level.SUB_HEALTH, node="n2")), 0)
    assert (set(faults.kept_out), set(faults.sub_healthy)) == ({"n1"}, {"n2"})
    faults.forget_object("a", 1)
    assert (set(faults.kept_out), set(faults.sub_healthy)) == (set(), set())


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(list(Level))))),
        max_size=12,
    )
)
def test_changes_add_up_to_what_stands(history: list[tuple[str, list[tuple[str, Level]]]]) -> None:
    store, told = FaultStore(), dict[str, ClusterFact]()
    for origin, listed in history:
        change = store.store_report(origin, reading(*(fact(code, level) for code, level in listed)))
        told.update({one.id: one for one in change.appeared})
        for one in change.withdrawn:
            del told[one.id]
    assert {one.id: one.level for one in store.faults_on_node("n1")} == {one.id: one.level for one in told.values()}


# ------------------------------------------------------------------ filters


def test_a_memory_fault_is_left_to_the_training_first() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("a", reading(fact("80E01801", Level.RESTART_BUSINESS)), 1000)
    assert (heard(faults, 1000), faults.wakes_in_ms(1000)) == ([], 10_000)
    assert faults.take_changed_nodes(11_000) == {"n1"}
    assert heard(faults, 11_000) == [("80E01801", Level.RESTART_BUSINESS)]


def test_the_shadows_of_a_memory_fault_are_none() -> None:
    faults = ClusterFaults(NODES)
    shadow, other = (
        fact("80C98009", Level.RESTART_REQUEST),
        fact("80C98009", Level.RESTART_REQUEST, device="Ascend910-1"),
    )
    faults.store_object("a", reading(shadow, other), 0)
    faults.store_object("b", reading(fact("80E01801", Level.RESTART_BUSINESS)), 4_000)
    assert [one.device for one in faults.faults_on_node("n1", 6_000)] == ["Ascend910-1"]
    assert [code for code, _ in heard(faults, 14_000)] == ["80C98009", "80E01801"]


def test_a_shadow_long_after_is_a_fault_of_its_own() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("b", reading(fact("80E01801", Level.RESTART_BUSINESS)), 0)
    faults.store_object("a", reading(fact("80CB8009", Level.RESTART_REQUEST)), 5_001)
    assert len(heard(faults, 20_000)) == 2


def test_a_network_fault_beside_a_broken_link_isolates() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("a", reading(fact("8C1F8608", Level.NOT_HANDLE), fact("81078603", Level.NOT_HANDLE)), 0)
    assert heard(faults, 0)[0] == ("8C1F8608", Level.SEPARATE)
    late = fact("8C1F8608", Level.NOT_HANDLE, device="Ascend910-1")
    faults.store_object("b", reading(late), 1)
    assert heard(faults, 1)[-1] == ("8C1F8608", Level.NOT_HANDLE)


def test_a_link_of_the_switch_explains_a_failed_retry_only() -> None:
    faults = ClusterFaults(NODES)
    codes = ("8C1F860B", "8C1F8608", "8C1F8609", "4C1F8608")
    link = fact("[0x08520003,na,L2,na]", Level.NOT_HANDLE, device="")
    faults.store_object("a", reading(*(fact(code, Level.NOT_HANDLE) for code in codes), link), 0)
    raised = {code for code, level in heard(faults, 61_000) if level is not Level.NOT_HANDLE}
    assert raised == {"8C1F860B"}


def test_a_link_of_another_chip_explains_nothing() -> None:
    faults = ClusterFaults(NODES)
    link = fact("81078603", Level.NOT_HANDLE, device="Ascend910-7")
    faults.store_object("a", reading(fact("8C1F8608", Level.NOT_HANDLE), link), 0)
    assert ("8C1F8608", Level.NOT_HANDLE) in heard(faults, 0)


def test_a_link_that_came_up_explains_for_three_minutes() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("a", reading(fact("81078603", Level.NOT_HANDLE)), 0)
    faults.store_object("a", reading(), 1_000)
    faults.store_object("a", reading(fact("8C1F8608", Level.NOT_HANDLE)), 2_000)
    assert heard(faults, 2_000) == [("8C1F8608", Level.SEPARATE)]
    assert heard(faults, 181_001) == [("8C1F8608", Level.NOT_HANDLE)]


def test_a_failed_network_retry_is_left_to_the_training_first() -> None:
    faults = ClusterFaults(NODES)
    faults.store_object("a", reading(fact("8C1F860B", Level.NOT_HANDLE)), 0)
    assert (heard(faults, 59_999), faults.wakes_in_ms(0)) == ([], 60_000)
    assert heard(faults, 60_000) == [("8C1F860B", Level.RESTART_BUSINESS)]
    faults.store_object("b", reading(fact("81078603", Level.NOT_HANDLE)), 60_001)
    assert heard(faults, 60_002)[0] == ("8C1F860B", Level.SEPARATE)


def test_a_fault_that_comes_three_times_a_day_isolates() -> None:
    faults, hour = ClusterFaults(NODES), 3_600_000
    for count in range(3):
        faults.store_object("a", reading(fact("c", Level.RESTART_BUSINESS)), count * hour)
        levels = [level for _, level in heard(faults, count * hour)]
        assert levels == [Level.MANUALLY_SEPARATE if count == 2 else Level.RESTART_BUSINESS]
        faults.store_object("a", reading(), count * hour + 1)


def test_a_fault_that_comes_once_a_day_does_not_isolate() -> None:
    faults, day = ClusterFaults(NODES), 24 * 3_600_000
    for count in range(4):
        faults.store_object("a", reading(fact("c", Level.RESTART_BUSINESS)), count * (day // 2))
        assert heard(faults, count * (day // 2)) == [("c", Level.RESTART_BUSINESS)]
        faults.store_object("a", reading(), count * (day // 2) + 1)


def test_the_same_code_on_many_chips_is_the_programs_doing() -> None:
    faults, hour = ClusterFaults(NODES), 3_600_000
    both = [fact("c", Level.RESTART_BUSINESS, device=f"Ascend910-{chip}") for chip in range(2)]
    for count in range(4):
        faults.store_object("a", reading(*both), count * hour)
        assert {level for _, level in heard(faults, count * hour)} == {Level.RESTART_BUSINESS}
        faults.store_object("a", reading(), count * hour + 1)


# ------------------------------------------------------------------ floods


def flood(faults: ClusterFaults, count: int, now_ms: int) -> None:
    for number in range(count):
        faults.store_object(f"o{number}", reading(fact(node=f"n{number}")), now_ms)


def test_a_few_bad_nodes_are_believed() -> None:
    faults = ClusterFaults(NODES)
    flood(faults, 3, 0)
    assert faults.take_changed_nodes(0) == {"n0", "n1", "n2"}
    assert faults.take_changed_nodes(0) == frozenset()


def test_a_flood_is_held_however_long_it_stands() -> None:
    faults = ClusterFaults(NODES)
    flood(faults, 4, 0)
    assert "since then: 4 of 10" in faults.why_held(0)
    assert (faults.take_changed_nodes(0), heard(faults, 0)) == (frozenset(), [])
    assert faults.take_changed_nodes(24 * 3_600_000) == frozenset()


def test_what_was_held_is_told_when_the_flood_is_over() -> None:
    faults = ClusterFaults(NODES)
    flood(faults, 4, 0)
    faults.take_changed_nodes(0)
    faults.forget_object("o0", 100_000)
    assert faults.take_changed_nodes(100_000) == {"n0", "n1", "n2", "n3"}
    assert heard(faults, 100_000) == [("c", Level.SEPARATE)]


def test_nodes_that_turned_bad_long_ago_count_no_more() -> None:
    faults = ClusterFaults(NODES)
    flood(faults, 3, 0)
    faults.take_changed_nodes(0)
    faults.store_object("late", reading(fact(node="n7")), 60_000)
    assert faults.why_held(60_000) == ""


def test_an_admin_believes_a_flood() -> None:
    faults = ClusterFaults(NODES)
    flood(faults, 9, 0)
    assert faults.take_changed_nodes(1) == frozenset()
    faults.believe_all(2)
    assert len(faults.take_changed_nodes(2)) == 9


def test_nodes_isolated_before_are_no_flood() -> None:
    faults = ClusterFaults(NODES)
    faults.known_bad.update({"n0", "n1"})
    flood(faults, 5, 0)
    assert faults.why_held(0) == ""


def test_the_share_counts_in_a_large_cluster() -> None:
    faults = ClusterFaults([*(f"n{number}" for number in range(999)), "m"])
    flood(faults, 200, 0)
    assert faults.why_held(0) == ""
    faults.store_object("one more", reading(fact(node="m")), 1)
    assert faults.why_held(1)


def test_a_thousand_faults_on_one_chip_take_no_quadratic_time() -> None:
    faults = ClusterFaults(NODES)
    many = [fact(f"8C1F8608/{number}") for number in range(1000)]
    related = [dataclasses.replace(one, code="8C1F8608") for one in many]
    begin = time.process_time()
    faults.store_object("a", reading(*related, fact("81078603", Level.NOT_HANDLE)), 0)
    assert len(heard(faults, 0)) == 1001
    assert time.process_time() - begin < 2.0  # linear: some 10 ms


def test_faults_that_harm_nobody_open_no_breaker() -> None:
    faults = ClusterFaults(NODES)
    for number in range(9):
        harmless = dataclasses.replace(fact(node=f"n{number}", level=Level.NOT_HANDLE))
        faults.store_object(f"o{number}", reading(harmless), 0)
    assert len(faults.take_changed_nodes(0)) == 9


# ------------------------------------------------------------------ the order in which facts come


Step = tuple[str, str, bool]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["n1", "n2"]), st.booleans()), max_size=12), st.data())
def test_order_repetition_and_outages_change_nothing(steps: list[Step], data: st.DataObject) -> None:
    """A watch that was away shows the newest of each object, in any order, some twice: the result is the same."""
    newest = {(origin, node): stands for origin, node, stands in steps}
    through, after = ClusterFaults(NODES), ClusterFaults(NODES)
    for now, (origin, node, stands) in enumerate(steps):
        through.store_object(f"{origin}/{node}", reading(*([fact(node=node)] if stands else [])), now)
    seen = data.draw(st.permutations([*newest.items(), *data.draw(st.permutations(list(newest.items())))]))
    for (origin, node), stands in seen:
        after.store_object(f"{origin}/{node}", reading(*([fact(node=node)] if stands else [])), 100)
    for node in ("n1", "n2"):
        assert heard(through, 200, node) == heard(after, 200, node)
    assert set(through.kept_out) == set(after.kept_out)
    assert through.why_held(200) == after.why_held(200)


def test_links_of_nodes_that_come_and_go_are_forgotten() -> None:
    gc.collect()  # what other tests have left behind is none of these
    before = sum(isinstance(one, LinkFault) for one in gc.get_objects())
    faults = ClusterFaults(())
    for number in range(5000):
        now, name = number * 1000, f"node-{number}"
        faults.store_object(name, reading(fact("81078603", Level.NOT_HANDLE, node=name)), now)
        faults.forget_object(name, now + 1)
    assert sum(isinstance(one, LinkFault) for one in gc.get_objects()) - before <= 1001
