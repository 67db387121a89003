"""The manager's plugins: what a signal in the one slot makes of MindIO and the agents, tick by tick. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from e2e.taskd.traits import has_trait

EXIT_AGENT, RESTART_AGENT, RESTART_WORKERS, START_AGENT, STOP_WORKERS = 203, 208, 209, 210, 213
IN_PLACE: Final = "recover-in-place"
RECOVERIES: Final = ("retry", "recover", "dump", "continue")
RESIZES: Final = ("downgrade", "upgrade")
FAULT_SECONDS: Final = 1500.0
"""So long the manager waits with a fault that agent 0 has told; TASKD_FAULT_SECONDS shortens it."""


@dataclass(frozen=True)
class Signal:
    """What is in the slot."""

    type: str
    uuid: str = ""
    actions: tuple[str, ...] = ()
    ranks: Mapping[int, int] = field(default_factory=dict)
    strategy: str = ""
    timeout: int = 0
    nodes: tuple[str, ...] = ()
    extra: str = ""

    @property
    def key(self) -> str:
        """By which repetitions are told."""
        return self.type + ",".join(self.actions)


@dataclass(frozen=True)
class MindIOCall:
    """A call of one of MindIO's functions."""

    name: str
    arguments: tuple[object, ...] = ()


@dataclass(frozen=True)
class AgentMessage:
    """A message to one agent, or with node "*" to all others than `ranks` names."""

    node: str
    code: int
    ranks: tuple[str, ...] = ()


Deed = MindIOCall | AgentMessage


@dataclass
class Plugins:
    """State of all plugins of one manager."""

    process_recover: bool = True
    registered: set[str] = field(default_factory=set)
    faults: dict[str, float] = field(default_factory=dict)
    slot: Signal | None = None
    _holds: bool = False
    _held_sent: set[str] = field(default_factory=set)
    _fault_uuid: str = ""
    _recovered: tuple[str, str] = ("", "")
    _leaving: Signal | None = None
    _resized: str = ""
    _switched: str = ""
    _exiting: set[str] = field(default_factory=set)
    _exited: str = ""

    def take_signal(self, signal: Signal) -> None:
        """Put a signal into the slot; a keep-alive disturbs nothing."""
        if signal.type != "keep-alive":
            self.slot = signal

    def note_registered(self, node: str) -> None:
        """An agent has registered, and is one that is not awaited any more."""
        self.registered.add(node)
        self.faults.pop(node, None)
        self._exiting.discard(node)

    def note_fault(self, node: str, at: float) -> None:
        """An agent has told of workers that ended `at`, in seconds; only another agent of the node ends that."""
        self.faults[node] = at

    def tick(self, now: float = 0.0) -> list[Deed]:
        """What follows from the slot now, and where nothing does, from an old fault at node rank 0."""
        deeds = self._tick_slot()
        is_free = not (self._holds or self._exiting or self._resized or self._leaving)
        if deeds or not is_free or not self.process_recover or not has_trait("old_fault_ends_all"):
            return deeds
        is_old = now - self.faults.get("0", now) >= float(os.environ.get("TASKD_FAULT_SECONDS", FAULT_SECONDS))
        return self._kill_master() if is_old else []

    def _tick_slot(self) -> list[Deed]:
        if self._leaving is not None:
            leaving, self._leaving = self._leaving, None
            return [MindIOCall("change_strategy", (leaving.strategy, ""))]
        signal = self.slot
        if signal is None or (self._exiting and has_trait("exit_blocks")):
            return []
        if self._holds:
            return self._tick_while_held(signal)
        if signal.key != self._resized and self._resized:
            self._resized = ""
        return self._tick_freely(signal)

    def _tick_while_held(self, signal: Signal) -> list[Deed]:
        if signal.type in {"globalFault", "changeStrategy"}:
            self._holds, self._fault_uuid = False, signal.uuid
            self._held_sent.clear()
            return self._words_of(signal) if signal.type == "globalFault" else []
        if signal.type == "stopTrain" and not has_trait("token"):
            self._holds = False
        return []

    def _tick_freely(self, signal: Signal) -> list[Deed]:
        if signal.type == "stopTrain":
            self._holds = True
            return self._words_of(signal)
        if signal.type in {"globalFault", "preExitProcess"}:
            if signal.uuid == self._fault_uuid and has_trait("fault_uuid"):
                return []
            self._fault_uuid = signal.uuid
            return self._words_of(signal)
        if signal.type == "saveAndExit":
            return self._save_and_exit(signal)
        if signal.type == "faultNodesExit":
            self.slot = None
            return [AgentMessage(node, EXIT_AGENT) for node in signal.nodes]
        if signal.type == "killMaster":
            return self._kill_master()
        if signal.strategy == "migration" or signal.type == "hot-switch":
            return self._switch(signal)
        if signal.strategy == "exit":
            return self._exit(signal)
        return self._choose_strategy(signal)

    def _words_of(self, signal: Signal) -> list[Deed]:
        """What the actions of a stopTrain, globalFault or preExitProcess say."""
        deeds: list[Deed] = []
        for action in signal.actions:
            if action == "stop_train":
                deeds.append(MindIOCall("stop_train", (dict(signal.ranks), "stop")))
            elif action == "pause_train":
                deeds.append(MindIOCall("stop_train", ({}, "pause", signal.timeout or 600)))
            elif action == "on_global_rank":
                time = (signal.timeout,) if signal.timeout else ()
                deeds.append(MindIOCall("on_global_rank", (dict(signal.ranks), *time)))
            elif action == "fault_nodes_exit":
                deeds += [AgentMessage(node, EXIT_AGENT) for node in signal.nodes]
            elif action == "fault_nodes_restart" and has_trait("restart_word_kills"):
                deeds += [AgentMessage(node, RESTART_WORKERS) for node in signal.nodes]
            elif action == "pre exit process":
                ranks = tuple(map(str, signal.ranks))
                deeds += [AgentMessage(node, STOP_WORKERS, ranks) for node in signal.nodes]
        return deeds

    def _choose_strategy(self, signal: Signal) -> list[Deed]:
        if signal.strategy in RESIZES:
            return self._resize(signal)
        again = (signal.uuid, signal.strategy) == self._recovered and has_trait("same_strategy")
        if signal.strategy not in RECOVERIES or again:
            return []
        self._recovered = (signal.uuid, signal.strategy)
        if signal.strategy != "recover":
            return [MindIOCall("change_strategy", (signal.strategy, ""))]
        if signal.extra == IN_PLACE:
            ranks = tuple(map(str, signal.ranks))
            told = [AgentMessage(node, RESTART_WORKERS, ranks) for node in signal.nodes]
            return [MindIOCall("change_strategy", ("recover", "")), *told]
        self._leaving = signal  # agents first, MindIO a tick later
        return [AgentMessage(node, EXIT_AGENT) for node in signal.nodes]

    def _resize(self, signal: Signal) -> list[Deed]:
        if signal.key == self._resized and has_trait("elastic_dedup"):
            return []
        self._resized = signal.key
        left = [AgentMessage(node, EXIT_AGENT) for node in signal.nodes if "fault_nodes_exit" in signal.actions]
        if not has_trait("elastic_dedup"):
            self.slot = None
        return [*left, MindIOCall("change_strategy", (signal.strategy, signal.extra))]

    def _save_and_exit(self, signal: Signal) -> list[Deed]:
        if signal.uuid == self._recovered[0]:
            return []
        self._recovered = (signal.uuid, "")
        return [MindIOCall("dump"), *(AgentMessage(node, EXIT_AGENT) for node in signal.nodes)]

    def _kill_master(self) -> list[Deed]:
        if not self.process_recover and has_trait("needs_process_recover"):
            return []
        if not has_trait("kill_master_repeats"):
            self.slot = None
        return [MindIOCall("destroy"), AgentMessage("0", EXIT_AGENT)]

    def _switch(self, signal: Signal) -> list[Deed]:
        if signal.strategy == "migration":
            if (signal.uuid, "migration") == self._recovered:
                return []
            self._recovered, self._switched = (signal.uuid, "migration"), ""
            return [MindIOCall("change_strategy", ("migration", ""))]
        if signal.key == self._switched and has_trait("switch_dedup"):
            return []
        self._switched = signal.key
        if signal.actions == ("new pod running",):
            return []
        if not has_trait("switch_dedup"):
            self.slot = None
        return [MindIOCall("prepare_action", (*signal.actions, dict(signal.ranks)))]

    def _exit(self, signal: Signal) -> list[Deed]:
        ignored = not self.process_recover and has_trait("needs_process_recover")
        if ignored or signal.uuid == self._exited or (not signal.nodes and has_trait("exit_needs_nodes")):
            return []
        self._exited, self._exiting = signal.uuid, set(signal.nodes)
        others: Sequence[str] = sorted(self.registered - set(signal.nodes))
        return [
            MindIOCall("change_strategy", ("exit", "")),
            *(AgentMessage(node, EXIT_AGENT) for node in signal.nodes),
            *(AgentMessage(node, RESTART_AGENT) for node in others),
            MindIOCall("restart"),
        ]
