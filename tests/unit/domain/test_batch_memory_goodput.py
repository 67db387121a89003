"""Shares of the batch, device memory, and the account of time."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hajob.domain.batch import Batch
from hajob.domain.errors import HajobInputError
from hajob.domain.goodput import Account, Bucket
from hajob.domain.layout import Layout, Sharding
from hajob.domain.memory import BUFFER_BYTES, memory_of_layout


def test_published_shares() -> None:
    # global batch 64, micro batch 1, data 4: 16 each; 3 left: 22, 21, 21; 2 left: 32 each
    batch = Batch.from_sizes(64, 1, 4)
    assert batch.micro_batches_per_rank(4) == (16,) * 4
    assert batch.micro_batches_per_rank(3) == (22, 21, 21)
    assert batch.micro_batches_per_rank(2) == (32, 32)
    assert batch.relative_step_time(4) == 1
    assert batch.relative_step_time(3) == Fraction(22, 16)


@given(st.integers(1, 64), st.integers(1, 4), st.integers(1, 16), st.data())
def test_the_global_batch_is_kept(per_rank: int, micro: int, data: int, more: st.DataObject) -> None:
    batch = Batch.from_sizes(per_rank * micro * data, micro, data)
    current = more.draw(st.integers(1, data))
    shares = batch.micro_batches_per_rank(current)
    assert sum(shares) * micro == per_rank * micro * data
    assert len(shares) == current
    assert max(shares) - min(shares) <= 1
    assert list(shares) == sorted(shares, reverse=True)
    assert batch.relative_step_time(current) >= 1


@pytest.mark.parametrize("sizes", [(10, 1, 4), (0, 1, 1), (4, 0, 1), (4, 1, 0), (4, 3, 1)])
def test_batches_that_make_no_sense_are_refused(sizes: tuple[int, int, int]) -> None:
    whole, micro, data = sizes
    below = f"global batch {whole}, micro batch {micro} and {data} ranks: below 1"
    multiple = f"global batch {whole} is not a multiple of micro batch {micro} x data parallel {data}"
    with pytest.raises(HajobInputError, match=below if min(sizes) < 1 else multiple):
        Batch.from_sizes(*sizes)


@pytest.mark.parametrize("current", [0, 5, -1])
def test_shares_of_more_ranks_than_there_are(current: int) -> None:
    with pytest.raises(HajobInputError, match=f"{current} data-parallel ranks of 4"):
        Batch.from_sizes(64, 1, 4).micro_batches_per_rank(current)


def test_published_memory() -> None:
    # 4 + 16/d against 4 + 32/d bytes per parameter
    layout = Layout(4, 8, tensor=8)
    parameters = 8_000_000
    found = memory_of_layout(layout, parameters)
    assert (found.plain, found.copied) == (1_000_000 * (4 + 4), 1_000_000 * (4 + 8))
    assert found.extra_bytes == 4_000_000
    assert found.extra_bytes_total == 32 * 4_000_000
    assert found.elastic == BUFFER_BYTES * 18 == 3_600_000_000


def test_memory_without_sharding_and_without_copies() -> None:
    plain = Layout(4, 8, tensor=8, sharding=Sharding.NONE)
    assert memory_of_layout(plain, 8_000_000).plain == memory_of_layout(plain, 8_000_000).copied == 20_000_000
    assert (memory_of_layout(plain, 8_000_000).world_size, memory_of_layout(plain, 8_000_000).extra_bytes_total) == (
        32,
        0,
    )
    staged = Layout(4, 8, tensor=4, pipeline=2, sharding=Sharding.NONE)
    assert memory_of_layout(staged, 8_000_000) == memory_of_layout(plain, 8_000_000)
    assert isinstance(memory_of_layout(staged, 8_000_001).plain, int)
    assert memory_of_layout(Layout(4, 8, tensor=8, copies=1), 8_000_000).extra_bytes == 0
    assert memory_of_layout(Layout(1, 3), 1).plain == 10  # 4 + 16/3, rounded up


@pytest.mark.parametrize("parameters", [0, -1])
def test_a_model_without_parameters_is_refused(parameters: int) -> None:
    with pytest.raises(HajobInputError, match=f"{parameters} parameters"):
        memory_of_layout(Layout(1, 8), parameters)


OPERATIONS = st.one_of(
    st.tuples(st.just("until"), st.integers(-5, 1000)),
    st.tuples(st.just("switch"), st.sampled_from([*Bucket, None]), st.integers(0, 1000)),
    st.tuples(st.just("shrink"), st.integers(0, 3), st.integers(0, 1000)),
    st.tuples(st.just("move"), st.sampled_from(list(Bucket)), st.sampled_from(list(Bucket)), st.integers(-5, 2000)),
)


@given(st.lists(OPERATIONS, max_size=40))
def test_the_account_adds_up_to_wall_time(operations: list[tuple[object, ...]]) -> None:
    account, now, open_ms = Account(since_ms=0), 0, 0
    for operation in operations:
        match operation:
            case ("until", int(step)):
                open_ms += max(step, 0) if account.bucket else 0
                now += max(step, 0)
                account = account.book_until(now if step >= 0 else now + step)
            case ("switch", bucket, int(step)):
                open_ms += step if account.bucket else 0
                now += step
                account = account.switch_bucket(bucket, now)  # type: ignore[arg-type]
            case ("shrink", int(missing), int(step)):
                open_ms += step if account.bucket else 0
                now += step
                account = account.set_missing(missing, 4, now)
            case ("move", source, target, int(amount)):
                account = account.move_time(source, target, amount)  # type: ignore[arg-type]
        assert all(amount >= 0 for amount in account.booked.values())
        assert account.total_ms == open_ms - (now - account.since_ms if account.bucket else 0)
        assert 0 <= account.percent_training <= 100


def test_shrunk_time_is_split_by_what_is_missing() -> None:
    account = Account(0, Bucket.TRAINING).set_missing(1, 4, 1000).book_until(2000)
    assert account.booked == {Bucket.TRAINING: 1750, Bucket.SHRUNK: 250}
    assert account.percent_training == 87
    now = account.since_ms
    suspended = account.switch_bucket(Bucket.SUSPENDED, now).book_until(now + account.total_ms)
    assert (suspended.percent_training, suspended.percent_of_wanted) == (43, 87)
    assert account.set_missing(0, 4, 2000).book_until(3000).booked[Bucket.TRAINING] == 2750


def test_time_goes_into_the_bucket_that_is_open() -> None:
    account = (
        Account(0)
        .switch_bucket(Bucket.START_UP, 10)
        .switch_bucket(Bucket.TRAINING, 30)
        .switch_bucket(None, 60)
        .book_until(100)
    )
    assert account.booked == {Bucket.SCHEDULING: 10, Bucket.START_UP: 20, Bucket.TRAINING: 30}
    assert account.since_ms == 100
    assert account.switch_bucket(Bucket.SUSPENDED, 100).book_until(101).booked[Bucket.SUSPENDED] == 1
    account = Account(5)
    assert account.book_until(5) is account.book_until(4) is account
    assert Account(5).book_until(6).booked == {Bucket.SCHEDULING: 1}


def test_only_training_is_split() -> None:
    account = Account(0, Bucket.RECOVERY, missing=1, desired=3).book_until(100)
    assert account.booked == {Bucket.RECOVERY: 100}
    assert Account(0, Bucket.TRAINING, missing=1, desired=3).book_until(100).booked == {
        Bucket.TRAINING: 67,
        Bucket.SHRUNK: 33,
    }


def test_time_is_moved_never_made() -> None:
    account = Account(0, Bucket.TRAINING).book_until(1000).move_time(Bucket.TRAINING, Bucket.LOST_STEPS, 300)
    assert account.booked == {Bucket.TRAINING: 700, Bucket.LOST_STEPS: 300}
    assert account.move_time(Bucket.TRAINING, Bucket.DETECTION, 10_000).booked[Bucket.DETECTION] == 700
    assert account.move_time(Bucket.TRAINING, Bucket.LOST_STEPS, 100).booked == {
        Bucket.TRAINING: 600,
        Bucket.LOST_STEPS: 400,
    }
    assert account.move_time(Bucket.TRAINING, Bucket.TRAINING, 5) is account
    assert Account(0).percent_training == Account(0).percent_of_wanted == 0


@pytest.mark.parametrize(("missing", "desired"), [(4, 4), (-1, 4), (0, 0)])
def test_an_impossible_shrink_is_refused(missing: int, desired: int) -> None:
    words = f"{missing} of {desired} data-parallel ranks missing: not between 0 and {desired - 1}"
    with pytest.raises(HajobInputError, match=words):
        Account(0).set_missing(missing, desired, 1)
    assert Account(0).set_missing(0, 1, 1).desired == 1
