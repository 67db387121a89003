"""`status.dataParallel`: how many data-parallel ranks there are, what they achieve, and what the others wait for."""

from datetime import UTC, datetime
from typing import Final

from hajob.api import status as api
from hajob.domain.batch import Batch
from hajob.plan.state import JobState
from hajob.plan.waits import Wait

_MESSAGE_LIMIT: Final = 1024


def data_parallel(
    desired: int, state: JobState, wait: Wait | None, batch: Batch | None, step_ms: int | None
) -> api.DataParallel:
    """Build the current `status.dataParallel`.

    Args:
        desired: data-parallel ranks at full size.
        state: of the job: what is missing.
        wait: what the job waits for, if anything.
        batch: sizes of a step, None where they are not visible.
        step_ms: milliseconds of a step at the present size, None while it is not known.
    """
    whole = api.DataParallel(
        desired=desired,
        current=desired,
        wait_reason=wait.reason if wait is not None else None,
        wait_message=wait.message[:_MESSAGE_LIMIT] if wait is not None else None,
    )
    shrunk, smaller = state.shrunk, state.smaller
    if shrunk is None and smaller is None:
        return whole
    started = desired * smaller.nodes // (smaller.nodes + smaller.missing) if smaller is not None else desired
    dropped, full_step_ms = (shrunk.dropped, shrunk.full_step_ms) if shrunk is not None else ((), 0)
    current, since = started - len(dropped), smaller or shrunk
    assert since is not None
    measured = 100 * full_step_ms // step_ms if full_step_ms and step_ms and smaller is None else None
    less = {
        "current": current,
        "dropped": dropped,
        "since": datetime.fromtimestamp(since.since_ms // 1000, UTC),
        "expected_throughput_percent": _expected_percent(batch, current, desired),
        "measured_throughput_percent": measured,
    }
    return whole.model_copy(update=less)


def _expected_percent(batch: Batch | None, current: int, desired: int) -> int:
    """Return the expected throughput: the longest share of the global batch decides; equal shares where not visible."""
    return int(100 / batch.relative_step_time(current)) if batch is not None else 100 * current // desired


def measured_again(old: api.DataParallel | None, new: api.DataParallel | None) -> api.DataParallel | None:
    """Return the old value with the new measure, which alone is not worth a write; the first measure is."""
    if old is None or new is None or old.measured_throughput_percent is None:
        return old
    return old.model_copy(update={"measured_throughput_percent": new.measured_throughput_percent})
