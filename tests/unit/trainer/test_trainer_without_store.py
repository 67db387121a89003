"""Where the store is lost for ever: a training that has begun needs it for its next recovery only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from e2e.trainer import checkpoint
from e2e.trainer.saving import saver_for
from e2e.trainer.settings import settings_from
from e2e.trainer.store_client import StoreLostError, Value
from e2e.trainer.training import Training

FLAGS = ["--tensor-model-parallel-size", "1", "--use-distributed-optimizer", "--enable-high-availability"]
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

    def highest(self, key: str, value: int) -> int:
        self._answer()
        self.values[key] = value
        return value

    def gather(self, key: str, numbers: list[int], timeout: float) -> list[Value]:
        self._answer()
        assert timeout > 0
        return [self.values[f"{key}/{number}"] for number in numbers]


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
    made.resume()
    return made


def test_an_address_that_is_asked_for_late_is_known_already(training: Training, store: Store) -> None:
    store.lost = True
    assert training.address_of(1) == ("127.0.0.2", 7)


def test_addresses_are_learnt_anew_after_a_recovery_only(
    training: Training, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = store.asked
    training.resume()
    assert store.asked == asked
    store.values["address/1"] = ["127.0.0.3", 8]
    training.regroup([1])
    monkeypatch.setattr(training.collectives, "gather_parameters", lambda *_: training.parameters)
    training.resume()
    store.lost = True
    assert training.address_of(1) == ("127.0.0.3", 8)


def test_the_generation_is_asked_for_once_by_whoever_has_left(training: Training, store: Store) -> None:
    training.propose_generation()
    store.values["generation"] = 3  # by another one
    training.regroup([])
    assert training.transport.generation == 3
    asked = store.asked
    training.regroup([1])
    assert training.transport.generation == 3
    assert store.asked == asked


def test_a_checkpoint_is_committed_without_the_store(training: Training, store: Store, tmp_path: Path) -> None:
    (tmp_path / f"{checkpoint.directory_name(5)}_tmp").mkdir()
    store.lost = True
    training.commit(5, "periodic")
    assert checkpoint.newest(tmp_path) == 5


def test_who_does_not_take_part_is_not_looked_for(training: Training, store: Store) -> None:
    """What a pod that is gone had written may be gone as well."""
    training.collectives.active = (0,)
    training.regroup([1])
    del store.values["address/1"]
    training.learn_addresses()
    assert training.address_of(0) == training.transport.address
