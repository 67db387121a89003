"""`python3 -m trainer_sidecar.logs --rank R`: print a rank's kept output, inside the container of an agent.

`kubectl hajob logs` runs this by exec, so it needs no port and no right but the reader's own to `pods/exec`. The rank's
output goes to stdout unchanged, headings and errors to stderr. The files may lie on a shared volume, so any pod of the
job can print the output of every rank. docs/protocols/launcher.md#output
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainer_sidecar.launcher import kept
from trainer_sidecar.launcher.progress import parse_step_line

NOT_KEPT = 3
"""Exit code: the requested output is not kept; stderr says what is."""

_CHUNK = 64 * 1024
_POLL_SECONDS = 0.2
PRINTING_VARIABLE = "HAJOB_LOGS_OF_PRINTING"
"""Set where the rank is only a guess, and one that prints steps is wanted. A variable, since a command that is newer
than the sidecar may ask: an option that is not known would be refused."""
_TAIL = 64 * 1024
_MOST_RANKS = 64
"""Files that are looked into for a step: they may lie on a slow volume, and whoever asks waits."""
_POLLS_PER_SEARCH = 5
"""Search for a successor's file once a second: listing a directory of a shared volume is not free."""


class NotKeptError(Exception):
    """The requested output does not exist; the text names the output that does."""


@dataclass(frozen=True, order=True)
class ProcessOutput:
    """The kept output of one process; ordered by age."""

    attempt: int
    process: kept.KeptProcess
    path: Path

    @property
    def existing_files(self) -> list[Path]:
        """Return its files, oldest first."""
        return [path for path in (Path(f"{self.path}{kept.TURNED_OVER}"), self.path) if path.exists()]

    def heading(self) -> str:
        """Return a heading that names the process."""
        process = self.process
        return f"==> rank {process.rank}, attempt {self.attempt}, incarnation {process.incarnation}, {self.path} <=="


def kept_outputs(directory: Path, rank: int) -> list[ProcessOutput]:
    """Return all kept outputs of a rank, oldest first; may be empty. OSError: the directory can't be read."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for attempt in kept.kept_attempts(str(directory)):
            inside = directory / str(attempt)
            with contextlib.suppress(FileNotFoundError):  # removed at this moment
                processes = kept.kept_processes(str(inside), rank)
                found += [ProcessOutput(attempt, process, inside / kept.file_name(process)) for process in processes]
    return found


def rank_that_prints(directory: Path, guess: int) -> int:
    """Return a rank whose newest output in the newest attempt has a line of a step; the guess where none has.

    The guess comes first, then rank 0, then the highest. OSError: the directory can't be read.
    """
    try:
        attempts = kept.kept_attempts(str(directory))
        names = [path.name for path in (directory / str(attempts[-1])).iterdir()] if attempts else []
    except FileNotFoundError:
        return guess
    newest: dict[int, kept.KeptProcess] = {}
    for process in filter(None, map(kept.parse_file_name, names)):
        newest[process.rank] = max(process, newest.get(process.rank, process))
    others = sorted(newest.keys() - {guess, 0}, reverse=True)
    for rank in [rank for rank in (guess, 0, *others) if rank in newest][:_MOST_RANKS]:
        path = directory / str(attempts[-1]) / kept.file_name(newest[rank])
        if any(map(parse_step_line, _last_lines_of(path))):
            return rank
    return guess


def _last_lines_of(path: Path) -> list[bytes]:
    """Return the last lines of a process's output, with those of its rotated file while it has few of its own."""
    found = b""
    for part in (path, Path(f"{path}{kept.TURNED_OVER}")):
        with contextlib.suppress(FileNotFoundError), part.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            found = file.read(_TAIL) + found
        if len(found) >= _TAIL:
            break
    return found.splitlines()


def choose_outputs(
    found: list[ProcessOutput], rank: int, attempt: int | None, *, previous: bool
) -> list[ProcessOutput]:
    """Return the outputs to show: the newest process's, all of an attempt, or the one before. Raises `NotKeptError`."""
    if not found:
        raise NotKeptError(f"nothing is kept of rank {rank}: it has printed nothing yet, or its files were removed")
    newest = found[-1].attempt if attempt is None else attempt
    inside = [each for each in found if each.attempt == newest]
    if not inside:
        numbers = ", ".join(map(str, dict.fromkeys(each.attempt for each in found)))
        raise NotKeptError(
            f"nothing of attempt {newest} is kept of rank {rank}; kept are {numbers} (spec.output.attemptLimit says "
            "how many)"
        )
    if not previous:
        return inside if attempt is not None else inside[-1:]
    before = found[: found.index(inside[-1])]
    if not before:
        raise NotKeptError(f"nothing is kept of a process of rank {rank} before this one: {inside[-1].heading()}")
    return before[-1:]


def parts_to_print(chosen: Sequence[ProcessOutput], tail: int | None) -> list[tuple[ProcessOutput, Path, int]]:
    """Return the files to print and the offset to begin at in each: at most `tail` lines in all."""
    files = [(output, path) for output in chosen for path in output.existing_files]
    if tail is None:
        return [(output, path, 0) for output, path in files]
    result: list[tuple[ProcessOutput, Path, int]] = []
    for output, path in reversed(files):
        offset, lines = offset_of_last_lines(path, tail)
        result.insert(0, (output, path, offset))
        tail -= lines
        if tail <= 0:
            break
    return result


def offset_of_last_lines(path: Path, lines: int) -> tuple[int, int]:
    """Return the offset at which the last `lines` lines of a file begin, and their number."""
    with path.open("rb") as file:
        position = end = file.seek(0, os.SEEK_END)
        found = 0
        while position:
            size = min(_CHUNK, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            cut = len(block)
            while (cut := block.rfind(b"\n", 0, cut)) >= 0:
                if position + cut == end - 1:
                    continue  # the line end at the end of the file begins no further line
                found += 1
                if found == lines:
                    return position + cut + 1, lines
    return (0, found + 1) if lines and end else (end, 0)


class Printer:
    """Printer of outputs, with a heading before each; `follow_output` goes on with the newest one."""

    def __init__(self, directory: Path, rank: int, write: Callable[[bytes], None], say: Callable[[str], None]) -> None:
        self.rank = rank
        self._directory = directory
        self._write = write
        self._say = say
        self._shown: ProcessOutput | None = None

    def print_file(self, output: ProcessOutput, path: Path, offset: int) -> BinaryIO:
        """Print a file from `offset` on and return it, open at its end."""
        if output != self._shown:
            self._shown = output
            self._say(output.heading())
        file = path.open("rb")
        file.seek(offset)
        self._print_rest(file)
        return file

    def _print_rest(self, file: BinaryIO) -> None:
        """Print the rest of a file."""
        while piece := file.read(_CHUNK):
            self._write(piece)

    def follow_output(self, output: ProcessOutput, file: BinaryIO, wait: Callable[[], bool]) -> None:
        """Print added output, of this process and of every later one of the rank, until `wait` returns False."""
        polls = 0
        while True:
            polls += 1
            later = kept_outputs(self._directory, self.rank)[-1:] if polls % _POLLS_PER_SEARCH == 0 else []
            turned = self.rotated_file(output.path, file)
            self._print_rest(file)  # after the search for both: only then is this the file's end
            if turned is not None:
                file.close()
                file = turned
            elif later and later[0] > output:
                file.close()
                output = later[0]
                file = self.print_file(output, output.path, 0)
            elif not wait():
                file.close()
                return

    @staticmethod
    def rotated_file(path: Path, file: BinaryIO) -> BinaryIO | None:
        """Return the file that was begun when this one was full."""
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino != os.fstat(file.fileno()).st_ino:
                return path.open("rb")
        return None


def reader_waits() -> bool:
    """Wait a moment; return False when standard input has ended, because the reader has disconnected."""
    ready, _, _ = select.select([sys.stdin], [], [], _POLL_SECONDS)
    return not ready or bool(os.read(sys.stdin.fileno(), 1024))


def print_requested(arguments: argparse.Namespace, directory: Path, printer: Printer, wait: Callable[[], bool]) -> None:
    """Print the requested output. NotKeptError: it does not exist; OSError: it can't be read."""
    while True:
        if arguments.printing:
            printer.rank = rank_that_prints(directory, arguments.rank)
        found = kept_outputs(directory, printer.rank)
        if found or not arguments.follow or not wait():
            break
    chosen = choose_outputs(found, printer.rank, arguments.attempt, previous=arguments.previous)
    shown = parts_to_print(chosen, arguments.tail)
    for number, (output, path, offset) in enumerate(shown, start=1):
        file = printer.print_file(output, path, offset)
        if arguments.follow and number == len(shown):
            printer.follow_output(output, file, wait)
        else:
            file.close()


def output_directory(environment: Mapping[str, str]) -> Path:
    """Return the directory of output that the agent gives the launcher. KeyError: not an agent's container."""
    return Path(environment.get("HAJOB_OUTPUT_DIR") or Path(environment["HAJOB_DIR"]) / "output")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line that `kubectl hajob logs` writes."""
    made = argparse.ArgumentParser(prog="trainer_sidecar.logs", description="print a rank's kept output")
    made.add_argument("--rank", type=int, required=True)
    made.add_argument("--attempt", type=int)
    made.add_argument("--previous", action="store_true")
    made.add_argument("--tail", type=int)
    made.add_argument("--follow", action="store_true")
    made.set_defaults(printing=False)
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Print; return 3 when the output is not kept, 1 when it can't be read, each with a sentence on stderr."""
    arguments = build_parser().parse_args(words)
    arguments.printing = bool(os.environ.get(PRINTING_VARIABLE))

    def write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")  # at once, or the output would come in between
        sys.stderr.flush()

    try:
        directory = output_directory(os.environ)
        print_requested(arguments, directory, Printer(directory, arguments.rank, write, say), reader_waits)
    except NotKeptError as problem:
        say(f"{problem}; the files are in {directory}")
        return NOT_KEPT
    except BrokenPipeError:  # the reader has disconnected; exit without a message, at interpreter's end too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyError:
        say("HAJOB_DIR is not set: this is not the container of an agent")
        return 1
    except OSError as problem:
        say(f"output cannot be read: {problem}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
