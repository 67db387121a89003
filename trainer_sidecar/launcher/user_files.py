"""Changes to the user's checkpoints, made by a process of the user: the training may overwrite files written by it.

The agent, which runs as another user, looks and decides; the launcher carries the decision out, in a thread, since a
volume may hang. Every file is made under another name, renamed, and synced with its directory, so that a node that dies
in the middle leaves either the old or the new state, never half of it.
docs/protocols/launcher.md, "The socket"
"""

from __future__ import annotations

import binascii
import errno
import json
import os
import shutil
import threading
from typing import Any, Callable, Dict

from .loop import Loop

TEMPORARY = ".hajob-tmp"
REFUSED = ".refused"

Message = Dict[str, Any]


def carry_out_order(root: str, order: Message) -> None:
    """Carry out an order: `copies`, then `writes`, then what is put `aside`. OSError names the file.

    The trackers are last but one: a crash before it leaves the job as it was, to be looked at again.
    """
    for source, target in order["copies"]:
        os.makedirs(os.path.dirname(_path_below_root(root, target)), exist_ok=True)
        fresh = _temporary_name(_path_below_root(root, target))
        shutil.copyfile(_path_below_root(root, source), fresh)
        _rename_synced(fresh, _path_below_root(root, target))
    for path, text in order["writes"].items():
        fresh = _temporary_name(_path_below_root(root, path))
        with open(fresh, "w") as file:
            file.write(text)
        _rename_synced(fresh, _path_below_root(root, path))
    for path in order["aside"]:
        os.replace(_path_below_root(root, path), _path_below_root(root, path) + REFUSED)


def _path_below_root(root: str, path: str) -> str:
    if os.path.isabs(path) or ".." in path.split("/"):
        raise OSError(errno.EINVAL, "leads out of the checkpoints", path)
    return os.path.join(root, path)


def _temporary_name(target: str) -> str:
    """Return a name of its own: a launcher that fell silent may still be at the same work."""
    return "{}{}-{}".format(target, TEMPORARY, binascii.hexlify(os.urandom(4)).decode())


def _rename_synced(fresh: str, target: str) -> None:
    """Rename a finished file to its name, synced to disk."""
    with open(fresh, "rb") as file:
        os.fsync(file.fileno())
    os.replace(fresh, target)
    directory = os.open(os.path.dirname(target) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class UserFiles:
    """Executor of the agent's file orders, each in a thread of its own; it reports each outcome."""

    def __init__(self, loop: Loop, root: str, tell: Callable[[Message], None]) -> None:
        self._loop = loop
        self._root = root
        self._tell = tell
        self._at_work: Dict[int, threading.Thread] = {}

    def begin_order(self, order: Message) -> None:
        """Begin an order; the answer bears its number."""
        read_end, write_end = os.pipe()
        self._loop.watch_descriptor(read_end, lambda: self._report_outcome(read_end))
        self._at_work[read_end] = threading.Thread(target=self._run_order, args=(order, write_end), daemon=True)
        self._at_work[read_end].start()

    def refuse_order(self, order: Message, problem: str) -> None:
        """Refuse an order without a change: another pod will carry it out."""
        self._tell({"kind": "files", "number": order["number"], "errno": errno.ESHUTDOWN, "problem": problem})

    def finish_orders(self, seconds: float) -> None:
        """Report finished orders before the launcher ends, so that the agent does not decide on them anew."""
        for read_end, thread in list(self._at_work.items()):
            thread.join(seconds)
            if not thread.is_alive():
                self._report_outcome(read_end)

    def _run_order(self, order: Message, write_end: int) -> None:
        answer = {"kind": "files", "number": order["number"], "errno": 0, "problem": ""}
        try:
            carry_out_order(self._root, order)
        except OSError as problem:
            who = "user {} (group {})".format(os.geteuid(), os.getegid())
            text = "{} may not do it: {}" if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else "{}: {}"
            answer.update(errno=problem.errno or errno.EIO, problem=text.format(who, problem))
        except Exception as problem:  # an order that this launcher does not understand must not end the training
            answer.update(errno=errno.EINVAL, problem=repr(problem))
        with os.fdopen(write_end, "wb") as pipe:
            # At most what a pipe takes in one write that cannot be torn (PIPE_BUF): the loop reads it in one go.
            pipe.write(json.dumps(answer).encode("ascii")[:4096])

    def _report_outcome(self, read_end: int) -> None:
        self._loop.forget_descriptor(read_end)
        del self._at_work[read_end]
        with os.fdopen(read_end, "rb") as pipe:
            self._tell(json.loads(pipe.read().decode("ascii")))
