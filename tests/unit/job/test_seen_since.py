"""How long things are seen, and when somebody is woken for it."""

from hajob.job.seen_since import SeenSince
from tests.rigs.fake_clock import FakeClock


async def test_a_thing_ages_while_it_is_seen_at_every_look() -> None:
    clock, woken = FakeClock(), list[float]()
    ages = SeenSince(clock, lambda: woken.append(clock.monotonic()))
    begun = clock.monotonic()
    assert ages.look(["a"], 3.0, 15.0) == {"a": 0.0}
    await clock.advance(2.0)
    assert ages.look(["a", "b"], 3.0, 15.0) == {"a": 2.0, "b": 0.0}
    await clock.advance(20.0)
    assert [at - begun for at in woken] == [3.0, 5.0, 15.0, 17.0]


async def test_what_was_not_seen_once_begins_anew() -> None:
    clock = FakeClock()
    ages = SeenSince(clock, lambda: None)
    ages.look(["a"])
    await clock.advance(5.0)
    assert ages.look([]) == {}
    assert ages.look(["a"]) == {"a": 0.0}
