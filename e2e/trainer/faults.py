"""Faults a test can order, by flag or while the training runs.

A fault is a line of `name=value` words, given with `--fault` or written into `<log-dir>/faults` (looked at once per
step): `rank=2 step=5 at=update do=kill`. Without `rank` every rank is meant, without `step` the next chance is taken.

- `at`: startup, ready, forward, update, updated, save, stop, clean, rebuild, repair, rollback, dump, end (the program
  is over, its final save done; default: forward)
- `do`: kill (SIGKILL), crash (SIGSEGV, as a destructor does), exit (code 1), raise (RuntimeError with `text`, with
  underscores for spaces, NOW for the time in microseconds), hang (stands still until stopped), stuck (stands still for
  `seconds`, 600 by default, and cannot be stopped), freeze (SIGSTOP), nan (prints a line with `loss: nan`), fail (the
  clean handler returns 1), nonsense (the handler does its work and returns `answer`: 17, none or text), mute (no
  heartbeat reaches MindIO any more; needs `TOY_RELAY=1`), slow (waits `seconds`)
- `after=1.5`: so many seconds later than the moment
- `always=1`: again in every process and at every chance; otherwise once per run, marked by a file in the log directory
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE: Final = "faults"
"""In the log directory."""
MOMENTS: Final = frozenset(
    {
        "startup",
        "ready",
        "forward",
        "update",
        "updated",
        "save",
        "stop",
        "clean",
        "rebuild",
        "repair",
        "rollback",
        "dump",
        "end",
    }
)
DEEDS: Final = frozenset(
    {"kill", "crash", "exit", "raise", "hang", "stuck", "freeze", "nan", "fail", "nonsense", "mute", "slow"}
)
_SIGNALS: Final = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "freeze": signal.SIGSTOP}
ANSWERS: Final[dict[str, object]] = {"17": 17, "none": None, "text": "nonsense"}
STEP_MOMENTS: Final = frozenset({"forward", "update", "updated", "save"})
"""Moments of a step; the others are those of a process or a recovery."""
_WORDS: Final = frozenset({"rank", "step", "at", "do", "text", "answer", "seconds", "after", "always"})


class OrderedError(RuntimeError):
    """Raised by `do=fail`, for handlers that answer a failure with a return value."""


@dataclass(frozen=True)
class Fault:
    """One ordered fault."""

    line: str
    deed: str
    moment: str = "forward"
    rank: int | None = None
    step: int | None = None
    text: str = ""
    answer: str = "17"
    seconds: float = 600.0
    after: float = 0.0
    always: bool = False

    @classmethod
    def parse(cls, line: str) -> Fault:
        """Read a line; raises ValueError naming the word that is not understood."""
        words = dict(word.split("=", 1) for word in line.split())
        if unknown := set(words) - _WORDS:
            raise ValueError(f"fault {line!r}: unknown word {min(unknown)!r}; known are {sorted(_WORDS)}")
        deed, moment = words.get("do", "kill"), words.get("at", "forward")
        if deed not in DEEDS or moment not in MOMENTS:
            raise ValueError(f"fault {line!r}: do= is one of {sorted(DEEDS)}, at= one of {sorted(MOMENTS)}")
        if words.get("answer", "17") not in ANSWERS:
            raise ValueError(f"fault {line!r}: answer= is one of {sorted(ANSWERS)}")
        return cls(
            line=" ".join(line.split()),
            deed=deed,
            moment=moment,
            rank=int(words["rank"]) if "rank" in words else None,
            step=int(words["step"]) if "step" in words else None,
            text=words.get("text", "UCE_ERROR").replace("_", " "),
            answer=words.get("answer", "17"),
            seconds=float(words.get("seconds", 600)),
            after=float(words.get("after", 0)),
            always=words.get("always") == "1",
        )

    def fits(self, rank: int, moment: str, step: int | None) -> bool:
        """Whether this is the rank, the moment and the step; a step that has passed counts, so none is missed."""
        if self.rank not in {None, rank} or self.moment != moment:
            return False
        if self.step is None or step is None:
            return self.step is None or moment not in STEP_MOMENTS
        return step == self.step if self.always else step >= self.step

    def mark(self, directory: Path, rank: int) -> Path:
        """The file that shows that `rank` has met this fault."""
        letters = "".join(letter if letter.isalnum() else "-" for letter in self.line)
        return directory / f"fault-{letters}-{rank if self.rank is None else 'once'}"


def order(directory: Path, *lines: str) -> None:
    """Have the ranks with this log directory read these faults, and no others, at their next step."""
    fresh = directory / f"{FILE}.new"
    fresh.write_text("".join(f"{line}\n" for line in lines))
    fresh.rename(directory / FILE)


@dataclass
class Faults:
    """The faults of one rank; `pause` lets time pass and can be stopped, `mute` silences the rank's heartbeats."""

    rank: int
    directory: Path
    ordered: Iterable[str] = ()
    pause: Callable[[float], None] = time.sleep
    mute: Callable[[], None] | None = None
    _faults: list[Fault] = field(default_factory=list)
    _seen: int = -1

    def __post_init__(self) -> None:
        """Read the flags; raises ValueError for a line that is not understood."""
        self._fixed = [Fault.parse(line) for line in self.ordered]
        self._faults = list(self._fixed)

    def look(self) -> None:
        """Read `<log-dir>/faults` again if it has changed; a line that is not understood is printed and left out."""
        path = self.directory / FILE
        try:
            changed = path.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if changed != self._seen:
            self._seen = changed
            self._faults = [*self._fixed, *_readable(path.read_text().splitlines())]

    def at(self, moment: str, step: int | None = None) -> None:
        """Do what is ordered for this moment."""
        if moment not in STEP_MOMENTS:
            self.look()
        for fault in self._faults:
            if fault.deed != "nonsense" and fault.fits(self.rank, moment, step) and self._first_time(fault):
                self._do(fault)

    def answer(self, moment: str, usual: object = None) -> object:
        """What the handler of this moment returns: `usual`, unless nonsense is ordered."""
        for fault in self._faults:
            if fault.deed == "nonsense" and fault.fits(self.rank, moment, None) and self._first_time(fault):
                return ANSWERS[fault.answer]
        return usual

    def _first_time(self, fault: Fault) -> bool:
        if fault.always:
            return True
        try:
            fault.mark(self.directory, self.rank).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _do(self, fault: Fault) -> None:
        if fault.after:
            time.sleep(fault.after)
        match fault.deed:
            case "kill" | "crash" | "freeze" as deed:
                os.kill(os.getpid(), _SIGNALS[deed])
            case "exit":
                print(f"rank {self.rank}: ends with code 1, as ordered", flush=True)
                os._exit(1)
            case "fail":
                raise OrderedError(fault.text)
            case "mute":
                self._mute()
            case "raise":
                raise RuntimeError(fault.text.replace("NOW", str(time.time_ns() // 1000)))
            case "hang":
                self.pause(fault.seconds)
            case "nan":
                print(f"rank {self.rank}: loss: nan", flush=True)
            case _:
                time.sleep(fault.seconds)

    def _mute(self) -> None:
        if self.mute is None:
            print(f"rank {self.rank}: cannot be muted without TOY_RELAY=1", flush=True)
        else:
            self.mute()


def _readable(lines: list[str]) -> list[Fault]:
    faults = []
    for line in lines:
        try:
            faults.extend([Fault.parse(line)] if line.strip() else [])
        except ValueError as error:
            print(error, flush=True)
    return faults
