"""The supervisor of controller and store: it outlives every controller, and the coordinator's connections.

One thread, one selector, nothing of MindIO in it: code of the training image can only crash a child. There are two: the
controller, a new one with each `start`, and the store, which stays as long as the attempt is the same and can start
before a controller. The host keeps the log of calls and callbacks since MindIO last was at rest, so that a restarted
coordinator reads the state of the conversation instead of guessing; a wrong guess ends the controller.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
import traceback
import uuid
from typing import List, Optional, Tuple

from trainer_sidecar import controller_protocol, prctl, signals
from trainer_sidecar.controller_host import entry, process_group
from trainer_sidecar.controller_host.controller import PING
from trainer_sidecar.controller_host.part import CONTROLLER, STORE
from trainer_sidecar.controller_host.problems import HUNG_TEXT
from trainer_sidecar.controller_protocol import (
    HUNG,
    LOST,
    SOCKET_NAME,
    VERSION,
    LineBuffer,
    Message,
    encode_message,
    log_message,
    state_without_controller,
)

# A coordinator that leaves this much unread is not reading; it is dropped and gets the whole state when it dials again.
BACKLOG_BYTES = 1 << 20
# A controller that hangs costs nothing until a rank dies, so asking it seldom is enough.
PING_SECONDS = 2.0
MISSED_PINGS = 5
"""Looks in a row without an answer until the controller process counts as hung: 10 s. Looks are counted and not the
time, so that a pod that stood still as a whole accuses nobody. MindIO's calls return at once and hold up no answer."""


class Child:
    """A forked part and the two pipes to it."""

    def __init__(self, part: str, pid: int, write_end: int, read_end: int) -> None:
        self.part = part
        self.pid = pid
        self.write_end = write_end
        self.read_end = read_end
        self.buffer = LineBuffer()
        self.next_look = 0.0
        self.is_asked = False
        self.missed = 0


class Client:
    """The coordinator's connection; the host queues unread output, up to a bound."""

    def __init__(self, connection: socket.socket, hello: bytes) -> None:
        self.connection = connection
        self.incoming = LineBuffer()
        self.outgoing = hello
        self.bound = len(hello) + BACKLOG_BYTES  # however long it is, without the hello nobody knows anything


class Host:
    """Serves `controller.sock` in a directory until told to end or a signal comes."""

    def __init__(self, directory: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = controller_protocol.listen_on_socket(directory, SOCKET_NAME)
        self._selector.register(self._listener, selectors.EVENT_READ, "listener")
        self._client: Optional[Client] = None
        self._child: Optional[Child] = None
        self._store: Optional[Child] = None
        self._store_of: Tuple[object, ...] = ()  # attempt and place of the store that runs
        self._log: List[Message] = []
        self._done = False
        self._state: Message = state_without_controller(0)

    def serve_until_end(self) -> None:
        """Serve until the coordinator says `end`, or SIGTERM."""
        prctl.become_subreaper()
        waker, woken = socket.socketpair()
        woken.setblocking(False)
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._handle_sigterm)
        signals.unblock_signals()
        self._selector.register(woken, selectors.EVENT_READ, "signal")
        while not self._done:
            # Without a controller nothing is due by time, so the host sleeps until somebody speaks.
            for key, mask in self._selector.select(PING_SECONDS if self._child is not None else None):
                self._handle_source(key.data, mask)
            if self._child is not None and self._state["controller"] == "serving":
                self._ping_controller(self._child)
        self._end_child()
        self._end_store()

    def _handle_sigterm(self, _number: int, _frame: object) -> None:
        self._done = True

    def _handle_source(self, source: object, mask: int) -> None:
        """Handle one ready source; ignore a client or child that an earlier source of the same round ended."""
        if source == "listener":
            self._accept_client()
        elif isinstance(source, Client) and source is self._client:
            self._serve_client(source, mask)
        elif isinstance(source, Child) and source in (self._child, self._store):
            self._read_child(source)

    # -- the coordinator ------------------------------------------------------------------------------------------

    def _accept_client(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it hung up, or no descriptor is left: the next one dials again
            return
        connection.setblocking(False)
        if self._client is not None:
            self._drop_client(self._client)
        hello = {"event": "hello", "version": VERSION, "state": self._state, "log": self._log}
        self._client = Client(connection, encode_message(hello))
        self._selector.register(connection, selectors.EVENT_READ, self._client)
        self._flush_client(self._client)

    def _serve_client(self, client: Client, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush_client(client)
        if not mask & selectors.EVENT_READ or client is not self._client:
            return
        try:
            data = client.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop_client(client)
            return
        for message in client.incoming.cut_messages(data):
            self._handle_request(message)

    def _drop_client(self, client: Client) -> None:
        self._selector.unregister(client.connection)
        client.connection.close()
        if self._client is client:
            self._client = None

    def _send_to_client(self, message: Message) -> None:
        client = self._client
        if client is None:
            return
        client.outgoing += encode_message(message)
        if len(client.outgoing) > client.bound:
            self._drop_client(client)
        else:
            self._flush_client(client)

    def _flush_client(self, client: Client) -> None:
        try:
            sent = client.connection.send(client.outgoing) if client.outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop_client(client)
            return
        client.outgoing = client.outgoing[sent:]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outgoing else 0)
        self._selector.modify(client.connection, wanted, client)

    def _handle_request(self, message: Message) -> None:
        call = message.get("call")
        if call == "start":
            self._start_controller(message)
        elif call == "store":
            self._open_store(message)
        elif call == "known":
            self._state.update(takes_over=False, unfilled=False)
            self._send_state()
        elif call == "end":
            self._done = bool(message.get("host", False))
            self._end_child()
            self._send_state()
        elif self._child is None:
            self._send_to_client({"answer": message.get("id"), "code": -1, "exception": "no controller was started"})
        else:
            copied = {name: message.get(name) for name in ("id", "order")}
            log_message(self._log, {"called": call, "arguments": message.get("arguments", {}), **copied})
            self._write_child(self._child, message)

    # -- the controller -------------------------------------------------------------------------------------------

    def _start_controller(self, request: Message) -> None:
        self._end_child()
        self._log = []
        self._forget_controller(int(request["attempt"]))
        instance = "%d-%s" % (request["attempt"], uuid.uuid4().hex[:12])
        self._state.update(controller="starting", world_size=request["world_size"], instance=instance)
        self._state["takes_over"] = bool(request.get("wind"))
        self._keep_store(request)
        self._child = self._begin_child(CONTROLLER, request)
        self._send_state()

    def _open_store(self, request: Message) -> None:
        """Open the store: ranks wait for it, and another controller has to wait for them."""
        if self._child is None:
            self._forget_controller(int(request["attempt"]))
            self._keep_store(request)
        self._send_state()

    def _keep_store(self, request: Message) -> None:
        """Keep the store of the ranks' attempt; another attempt's begins empty."""
        wanted = (request["attempt"], request["address"], request["store_port"])
        if self._store is not None and self._store_of == wanted and self._state["store"] in ("starting", "listening"):
            return
        self._end_store()
        self._store_of = wanted
        for_ranks_that_run = request.get("call") == "store" or bool(request.get("wind"))
        self._state.update(store="starting", unfilled=for_ranks_that_run)
        self._store = self._begin_child(STORE, request)

    def _begin_child(self, name: str, request: Message) -> Optional[Child]:
        try:
            child = self._fork_child(name, request)
        except OSError as error:
            self._state.update({name: "failed", "problem": "no process for the %s: %s" % (name, error)})
            return None
        self._selector.register(child.read_end, selectors.EVENT_READ, child)
        return child

    def _fork_child(self, name: str, request: Message) -> Child:
        child_reads, host_writes = os.pipe()
        host_reads, child_writes = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            for descriptor in (child_reads, host_writes, host_reads, child_writes):
                os.close(descriptor)
            raise
        if pid == 0:
            self._run_as_child(name, request, child_reads, child_writes, (host_writes, host_reads))
        process_group.make_group_leader(pid)
        os.close(child_reads)
        os.close(child_writes)
        return Child(name, pid, host_writes, host_reads)

    def _run_as_child(
        self, name: str, request: Message, read_end: int, write_end: int, foreign: Tuple[int, int]
    ) -> None:
        """In the child: drop the host's descriptors, run, end without the host's exit hooks."""
        code = 1
        try:
            process_group.make_group_leader(0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._selector.close()
            self._listener.close()
            if self._client is not None:
                self._client.connection.close()
            siblings = [child for child in (self._child, self._store) if child is not None]
            for descriptor in (*foreign, *(end for child in siblings for end in (child.write_end, child.read_end))):
                os.close(descriptor)
            entry.run_part(name, request, read_end, write_end, may_change=True)
            code = 0
        except BrokenPipeError:
            pass  # the host has ended it, or has ended itself
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _write_child(self, child: Child, message: Message) -> None:
        try:
            os.write(child.write_end, encode_message(message))
        except OSError as error:
            self._send_to_client(
                {"answer": message.get("id"), "code": -1, "exception": "the controller is gone: %s" % error}
            )

    def _ping_controller(self, child: Child) -> None:
        """Ping the child regularly: a hung one keeps port and links, and would not be noticed."""
        now = time.monotonic()
        if now < child.next_look:
            return
        child.next_look = now + PING_SECONDS
        if not child.is_asked:
            child.is_asked = True
            self._write_child(child, {"call": PING})
            return
        child.missed += 1
        if child.missed == MISSED_PINGS and not self._state["problem"]:
            seconds = MISSED_PINGS * PING_SECONDS
            self._state.update(problem=HUNG_TEXT % seconds, kind=HUNG)
            self._send_state()

    def _note_ping_answer(self, child: Child) -> None:
        child.is_asked, child.missed = False, 0
        if self._state["kind"] == HUNG:
            self._state.update(problem="", kind="")
            self._send_state()

    def _read_child(self, child: Child) -> None:
        data = os.read(child.read_end, 65536)
        if not data:
            self._handle_ended_child(child)
            return
        for message in child.buffer.cut_messages(data):
            if message.get("call") == PING:
                self._note_ping_answer(child)
            else:
                self._handle_child_message(message)

    def _handle_child_message(self, message: Message) -> None:
        if message.get("event") == "part":
            self._state[message["part"]] = message["state"]
            if message["problem"]:
                self._state.update(problem=message["problem"], kind=message["kind"])
            self._send_state()
            return
        if message.get("code", 0) != 0:
            self._forget_call(message)
        else:
            log_message(self._log, message)
        message["attempt"] = self._state["attempt"]
        self._send_to_client(message)

    def _handle_ended_child(self, child: Child) -> None:
        text = self._reap_child(child)
        if child is self._store:
            self._store = None
        else:
            self._child = None
        if self._state[child.part] != "failed":
            self._state.update({child.part: "lost", "problem": text, "kind": LOST})
        self._send_state()

    def _reap_child(self, child: Child) -> str:
        self._selector.unregister(child.read_end)
        os.close(child.read_end)
        os.close(child.write_end)
        status = process_group.end_process_group(child.pid)
        if os.WIFSIGNALED(status):
            return "the %s process was ended by signal %d" % (child.part, os.WTERMSIG(status))
        return "the %s process ended with code %d" % (child.part, os.WEXITSTATUS(status))

    def _end_child(self) -> None:
        """Kill the child at once: an orderly end would tell the ranks that the controller ends, and may hang."""
        child, self._child = self._child, None
        if child is None:
            return
        self._reap_child(child)
        self._forget_controller(int(self._state["attempt"]))

    def _forget_controller(self, attempt: int) -> None:
        """Forget the controller; the store stays as it was."""
        self._state = dict(
            state_without_controller(attempt), store=self._state["store"], unfilled=self._state["unfilled"]
        )

    def _end_store(self) -> None:
        child, self._store = self._store, None
        if child is not None:
            self._reap_child(child)
        self._state["store"] = "none"

    # -- what is remembered ---------------------------------------------------------------------------------------

    def _forget_call(self, answer: Message) -> None:
        """Drop a refused call: it changes nothing, and repeated ones would push out the start of the incident."""
        for index in reversed(range(len(self._log))):
            entry = self._log[index]
            if "called" in entry and entry["id"] == answer["answer"]:
                del self._log[index]
                return

    def _send_state(self) -> None:
        self._send_to_client({"event": "state", "state": self._state})
