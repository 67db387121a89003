"""The output of ranks and script: kept and passed on without blocking the launcher.

A log file lies on a shared file system that may hang, and the reader of the container's stdout may stop reading.
Neither may delay the notice of an exit, so a thread behind a bounded queue does all writing; it drops what does not fit
and says so in the output itself.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import threading
import time
from typing import Callable, Deque, List, Tuple

from . import kept
from .loop import Loop

# Longer than any line of a trainer's own; of a program that prints without line ends memory stays bounded.
MAXIMUM_LINE_BYTES = 8192
# A traceback of a training framework and what was printed before it.
KEPT_LINES = 40
KEPT_LINE_CHARACTERS = 500
# Memory that a hanging volume or terminal may cost; what comes beyond it is dropped, and the output says so.
QUEUE_BYTES = 16 * 1024 * 1024
MOST_READS = 16  # of 64 KiB, a pipe's usual size
GATHER_SECONDS = 0.2  # waking the thread for each line costs more than the line


class Lines:
    """Cutter of a byte stream into lines; it cuts a line over 8 KiB, so that memory stays bounded.

    A carriage return ends a line as well: each update of a progress bar is one. Where nothing stands before it, it
    ends none.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._returned = False  # the newest line was ended by a carriage return; a line feed after it ends no other

    def cut_lines(self, data: bytes) -> List[bytes]:
        """Return the lines completed by `data`, without their line ends."""
        if self._returned and data[:1] == b"\n":
            data = data[1:]
        text = self._rest + data
        self._returned = text[-1:] == b"\r" and text[-2:-1] not in (b"", b"\r", b"\n")
        lines: List[bytes] = []
        for line in text.replace(b"\r\n", b"\n").split(b"\n"):
            *updates, last = line.split(b"\r")
            lines += filter(None, updates)
            lines.append(last)
        self._rest = lines.pop()
        while len(self._rest) > MAXIMUM_LINE_BYTES:
            lines.append(self._rest[:MAXIMUM_LINE_BYTES])
            self._rest = self._rest[MAXIMUM_LINE_BYTES:]
        return lines

    def take_rest(self) -> List[bytes]:
        """Return the incomplete line at the end of the stream."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Pipe:
    """The reading end of a process's output: `line` gets each line, `data` also the bytes read, unchanged."""

    def __init__(
        self,
        loop: Loop,
        descriptor: int,
        line: Callable[[bytes], object],
        ended: Callable[[], object],
        data: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._loop, self._descriptor = loop, descriptor
        self._line, self._ended, self._data = line, ended, data
        self._lines = Lines()
        loop.watch_descriptor(descriptor, self.read_available)

    def read_available(self) -> bool:
        """Read the available bytes; False: there are none now, or the stream has ended."""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        for line in self._lines.cut_lines(data) if data else self._lines.take_rest():
            self._line(line)
        if data:
            self._data(data)
            return True
        self._loop.forget_descriptor(self._descriptor)
        os.close(self._descriptor)
        self._ended()
        return False

    def read_rest(self) -> None:
        """Read the rest of an ended process's output, bounded: a process that it left behind may print for ever."""
        for _ in range(MOST_READS):
            if not self.read_available():
                return


class LastLines:
    """The newest lines of a stream, as text, for the fact about its end."""

    def __init__(self) -> None:
        self._lines: Deque[str] = collections.deque(maxlen=KEPT_LINES)

    def add_line(self, line: bytes) -> None:
        """Add a line; ignore an empty one."""
        if line.strip():
            self._lines.append(line[:KEPT_LINE_CHARACTERS].decode("utf-8", "replace"))

    def as_texts(self) -> List[str]:
        """Return the lines, oldest first."""
        return list(self._lines)


class Descriptor:
    """Output into an open descriptor; once it has no reader any more, into `otherwise`."""

    def __init__(self, descriptor: int, otherwise: Descriptor | None = None) -> None:
        self._descriptor = descriptor
        self._otherwise = otherwise
        self._broken = False
        self._closed = False

    def write_all(self, data: bytes) -> None:
        """Write all of it, waiting for the reader as long as it takes."""
        try:
            while data and not self._broken:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except BlockingIOError:  # another process made the shared description non-blocking
                    time.sleep(0.01)
        except OSError:
            self._broken = True
        if self._broken and self._otherwise is not None:
            self._otherwise.write_all(data)

    def close(self) -> None:
        """Close the descriptor; later output goes to `otherwise`."""
        if not self._closed:
            self._closed = self._broken = True
            os.close(self._descriptor)


class LogFile:
    """File with one process's output: appended, never overwritten, bounded by one rotation.

    At `maximum_bytes` the file becomes `<name>.1` (replacing an older one) and a new one begins. When the disk is full
    or the directory is missing, `complain` is called once and the rest of the output has no file.
    """

    def __init__(self, path: str, maximum_bytes: int, complain: Callable[[str], None]) -> None:
        self.path = path
        self._maximum_bytes = maximum_bytes
        self._complain = complain
        self._descriptor = -1
        self._size = 0
        self._failed = False

    def append_output(self, data: bytes) -> None:
        """Append; only the writer's thread calls this."""
        if self._failed:
            return
        try:
            self._open_file()
            if self._size and self._size + len(data) > self._maximum_bytes:
                self._rotate_file()
            while data:
                written = os.write(self._descriptor, data)
                self._size += written
                data = data[written:]
        except OSError as problem:
            self._failed = True
            self._complain("output is not kept in {}: {}".format(self.path, problem.strerror or problem))

    def _open_file(self) -> None:
        if self._descriptor < 0:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._descriptor).st_size

    def _rotate_file(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        os.replace(self.path, self.path + kept.TURNED_OVER)
        self._open_file()

    def close_file(self) -> None:
        """Close the file; only the writer's thread calls this."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Writer:
    """Thread that writes queued output; the queue is bounded in bytes."""

    def __init__(self, name: str, maximum_bytes: int = QUEUE_BYTES) -> None:
        self._changed = threading.Condition()
        self._queue: Deque[Tuple[Callable[[bytes], None], bytes]] = collections.deque()
        self._bytes = 0
        self._maximum_bytes = maximum_bytes
        self._dropped = 0
        self._busy = False
        self._thread = threading.Thread(target=self._write_for_ever, name=name, daemon=True)
        self._thread.start()

    def queue_output(self, write: Callable[[bytes], None], data: bytes) -> None:
        """Have the thread call `write` with `data`, in the order of calls; drop it when the queue is full."""
        with self._changed:
            if self._bytes + len(data) > self._maximum_bytes:
                self._dropped += len(data)
                return
            if self._dropped:
                note = "hajob: {} bytes of output dropped, the reader is too slow\n".format(self._dropped)
                self._append_entry(write, note.encode())
                self._dropped = 0
            self._append_entry(write, data)

    def call_in_order(self, function: Callable[[], None]) -> None:
        """Run `function` after all earlier output is written; never dropped, since a caller may wait for it."""
        with self._changed:
            self._append_entry(lambda _: function(), b"")

    def _append_entry(self, write: Callable[[bytes], None], data: bytes) -> None:
        if not self._queue:
            self._changed.notify_all()
        self._queue.append((write, data))
        self._bytes += len(data)

    def wait_until_written(self, seconds: float) -> bool:
        """Wait until everything is written, no longer than `seconds`; False: some output is still queued."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._queue or self._busy:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _write_for_ever(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                while not self._queue:
                    self._changed.wait()
                self._busy = True
            time.sleep(GATHER_SECONDS)
            with self._changed:
                batch, self._queue = self._queue, collections.deque()
            for write, entries in itertools.groupby(batch, key=lambda entry: entry[0]):
                self._write_batch(write, b"".join(data for _, data in entries))

    def _write_batch(self, write: Callable[[bytes], None], data: bytes) -> None:
        with contextlib.suppress(Exception):  # one bad target must not stop the others' output
            write(data)
        with self._changed:
            self._bytes -= len(data)


class Terminal(Writer):
    """The container's output: all lines go through one queue, so that they are not mixed."""

    def __init__(self) -> None:
        super().__init__("hajob-terminal")

    def print_message(self, text: str) -> None:
        """Print a message of the launcher itself."""
        self.queue_output(Descriptor(1).write_all, "hajob: {}\n".format(text).encode("utf-8", "replace"))
