"""Records: values that nobody changes, whoever guards them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, field, replace

import pytest

from hajob.domain.records import changed, draft, lock, record, redone


@record
class Place:
    """Where something stands."""

    x: int
    y: int = 2
    names: tuple[str, ...] = field(default_factory=tuple)


def test_records_are_values() -> None:
    assert Place(1) == Place(1, 2) != Place(2)
    assert hash(Place(1)) == hash(Place(1, 2, ()))
    assert asdict(replace(Place(1), y=3)) == {"x": 1, "y": 3, "names": ()}
    assert repr(Place(1)) == "Place(x=1, y=2, names=())"


def test_a_changed_copy_leaves_the_record_as_it_is() -> None:
    place = Place(1)
    assert changed(place, y=5) == Place(1, 5)
    assert place == Place(1)
    with pytest.raises(TypeError, match=r"Place has no \['z'\]"):
        changed(place, z=5)


def test_a_draft_leaves_the_record_as_it_is() -> None:
    place = Place(1)
    fields = draft(place)
    fields["x"] = 7
    assert redone(place, fields) == Place(7)
    assert place == Place(1)
    with pytest.raises(TypeError, match=r"Place has no \['z'\]"):
        redone(place, {**fields, "z": 5})


def test_a_locked_record_refuses_assignments() -> None:
    place = Place(1)
    with lock():
        assert changed(Place(4), y=5) == Place(4, 5)
        with pytest.raises(FrozenInstanceError, match=r"Place\.x is changed"):
            place.x = 2  # type: ignore[misc]  # what is refused
    assert place == Place(1)
