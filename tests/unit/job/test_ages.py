"""How long things are seen, and when the next of them comes to a limit."""

from math import inf

from hajob.job.ages import Ages


def test_a_thing_ages_while_it_is_seen_at_every_look() -> None:
    ages = Ages()
    assert ages.update_ages(["a"], 100.0) == {"a": 0.0}
    assert ages.update_ages(["a", "b"], 102.0) == {"a": 2.0, "b": 0.0}
    assert ages.next_limit_time(102.0, 3.0, 15.0) == 103.0
    assert ages.next_limit_time(103.0, 3.0, 15.0) == 105.0
    assert ages.next_limit_time(115.0, 3.0, 15.0) == 117.0
    assert ages.next_limit_time(117.0, 3.0, 15.0) == inf


def test_what_was_not_seen_once_begins_anew() -> None:
    ages = Ages()
    ages.update_ages(["a"], 100.0)
    assert ages.update_ages([], 105.0) == {}
    assert ages.update_ages(["a"], 106.0) == {"a": 0.0}
