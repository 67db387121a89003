"""The store goes with the controller: a training that has begun does not need it any more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.trainer import checkpoint
from e2e.trainer.saving import saver_for
from e2e.trainer.settings import settings_from
from e2e.trainer.store import StoreLostError, Value
from e2e.trainer.training import Training

FLAGS = ["--tensor-model-parallel-size", "1", "--use-distributed-optimizer"]
PLACE = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "HAJOB_INCARNATION": "1"}


class Store:
    """Two ranks' addresses, until it is lost."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {"address/1": ["127.0.0.2", 7]}
        self.lost = False
        self.asked = 0

    def _answer(self) -> None:
        self.asked += 1
        if self.lost:
            raise StoreLostError("store at nowhere: refused")

    def set(self, key: str, value: Value) -> None:
        self._answer()
        self.values[key] = value

    def get(self, key: str) -> Value:
        self._answer()
        return self.values.get(key)

    def gather(self, key: str, numbers: list[int], timeout: float) -> list[str | int]:
        self._answer()
        assert timeout > 0
        return [entry for number in numbers for entry in cast("list[str | int]", self.values[f"{key}/{number}"])]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def training(tmp_path: Path, store: Store) -> Training:
    settings = settings_from([*FLAGS, "--save", str(tmp_path)], PLACE)
    nothing: Any = SimpleNamespace(add=lambda *_, **__: None)
    made = Training(settings, nothing, nothing, nothing, nothing, saver_for)
    made.store = cast("Any", store)
    made.join()
    made._resume()
    return made


def test_an_address_that_is_asked_for_late_is_known_already(training: Training, store: Store) -> None:
    store.lost = True
    assert training._find(1) == ("127.0.0.2", 7)


def test_addresses_are_learnt_anew_after_a_recovery_only(training: Training, store: Store) -> None:
    asked = store.asked
    training._resume()
    assert store.asked == asked
    store.values["address/1"] = ["127.0.0.3", 8]
    training.regroup([1])
    training._parameters_are_stale = False
    training._resume()
    store.lost = True
    assert training._find(1) == ("127.0.0.3", 8)


def test_the_generation_is_asked_for_once_by_whoever_has_left(training: Training, store: Store) -> None:
    store.values["generation"] = 3
    training._has_left = True
    training.regroup([])
    assert training.transport.generation == 3
    asked = store.asked
    training.regroup([1])
    assert training.transport.generation == 3
    assert store.asked == asked


@pytest.mark.parametrize(("known", "committed"), [(None, True), (4, True), (5, False), (9, False)])
def test_a_checkpoint_is_committed_without_the_store_never_back(
    training: Training, store: Store, tmp_path: Path, known: int | None, committed: bool
) -> None:
    (tmp_path / f"{checkpoint.directory_name(5)}_tmp").mkdir()
    if known is not None:
        (tmp_path / checkpoint.TRACKER).write_text(str(known))
    store.lost = True
    if committed:
        training.commit(5, "periodic")
        assert checkpoint.newest(tmp_path) == 5
    else:
        with pytest.raises(StoreLostError):
            training.commit(5, "periodic")
        assert checkpoint.newest(tmp_path) == known
