"""A training on this machine without Kubernetes, with faults, and the proof that it was recovered as promised.

`python3 -m e2e.trainer.local --tensor 2 --data 4 --kill 3@10 --log-dir /tmp/run -- --train-iters 40` runs eight ranks
as plain processes, kills rank 3 at step 10 and brings it back. With `--compare DIR` the final weights must equal those
of the run that left its logs there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.trainer import proof
from e2e.trainer.compare import differences
from e2e.trainer.driver import Driver, Job
from e2e.trainer.layout import Layout

MINDFORMERS: Final = {"MINDIO_FOR_MINDSPORE": "1", "MS_ENABLE_TFT": "{TTP:1,UCE:1,ARF:1}"}


def parser() -> argparse.ArgumentParser:
    """Command line of the module."""
    result = argparse.ArgumentParser(prog="e2e.trainer.local", description="Train on this machine, with faults.")
    result.add_argument("--tensor", type=int, default=1)
    result.add_argument("--pipeline", type=int, default=1)
    result.add_argument("--data", type=int, default=2)
    result.add_argument("--tp-pp-dp", action="store_true", help="number ranks with the data index slowest")
    result.add_argument("--kill", action="append", default=[], metavar="RANK@STEP", help="kill a rank at a step")
    result.add_argument("--at", default="forward", help="moment of the step for --kill")
    result.add_argument("--strategy", default="recover", help="strategies in order of preference, with commas")
    result.add_argument("--pause-at", type=int, metavar="STEP", help="pause and go on")
    result.add_argument("--dump-at", type=int, metavar="STEP", help="save and exit")
    result.add_argument("--migrate", metavar="RANK@STEP", help="hot switch of a rank")
    result.add_argument("--log-dir", type=Path, required=True)
    result.add_argument("--compare", type=Path, help="log directory of an undisturbed run")
    result.add_argument("--own-sessions", action="store_true", help="a session for each rank")
    result.add_argument("--mindformers", action="store_true", help="MindFormers' face: no shards, every rank has all")
    result.add_argument("--torch", action="store_true", help="the GPT in real PyTorch (e2e/torch_trainer)")
    result.add_argument("--timeout", type=float, default=120.0)
    result.add_argument("trainer", nargs="*", help="further arguments of the trainer, after --")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one training; returns 0 when it ended well and the recovery kept its promise."""
    options = parser().parse_args(arguments)
    if options.mindformers:
        os.environ |= MINDFORMERS
    copies = options.data if options.mindformers else 2 if options.data % 2 == 0 else 1
    layout = Layout(options.tensor, options.data, options.pipeline, copies, options.tp_pp_dp)
    kills = [kill.split("@") for kill in options.kill]
    ordered = [word for rank, step in kills for word in ("--fault", f"rank={rank} step={step} at={options.at} do=kill")]
    strategies = tuple(options.strategy.split(","))
    arguments = [*options.trainer, *ordered]
    sessions = options.own_sessions
    job = Job(layout, options.log_dir, arguments, strategies, timeout=options.timeout, own_sessions=sessions)
    job.torch = options.torch
    driver = Driver(job)
    _order(driver, options)
    found = [] if driver.run() else ["not every rank ended with code 0 in time"]
    found += _report(layout, options.log_dir, [int(rank) for rank, _ in kills] if strategies == ("recover",) else [])
    found += differences(options.compare, options.log_dir) if options.compare else []
    print("\n".join(found) or "as promised")
    return 1 if found else 0


def _order(driver: Driver, options: argparse.Namespace) -> None:
    if options.pause_at is not None:
        driver.at_step(options.pause_at, driver.pause)
    if options.dump_at is not None:
        driver.at_step(options.dump_at, driver.dump)
    if options.migrate:
        rank, step = options.migrate.split("@")
        driver.at_step(int(step), lambda: driver.migrate(int(rank)))


def _report(layout: Layout, log_dir: Path, killed: list[int]) -> list[str]:
    events = proof.load(log_dir)
    for outage in proof.outages(events, layout.world):
        print(
            f"steps {outage.last_step} to {outage.next_step}: outage {outage.seconds:.3f} s, start-up "
            f"{outage.startup_seconds:.3f} s, control share {outage.control_seconds:.3f} s; {outage.restored}"
        )
    return proof.failures(events, {rank: layout.partner(rank) for rank in killed}) if killed else []


if __name__ == "__main__":
    sys.exit(main())
