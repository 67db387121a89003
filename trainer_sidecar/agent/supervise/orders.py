"""The newest order of the coordinator for this pod, as a level."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.settings import AgentSettings
from trainer_sidecar.agent.supervise.ranks import Wanted
from trainer_sidecar.launcher.arguments import WITHOUT_MINDIO
from trainer_sidecar.launcher.protocol import ProcessName

log = logging.getLogger(__name__)


class Orders:
    """The newest order of the coordinator that is listened to.

    Attributes:
        wanted: what is ordered of each local rank that the order names.
        controller_address: host:port of the MindIO controller, empty while there is none.
        controller: which controller process serves there, empty: not told.
        stand_ins: ranks without a process that this agent makes known to it.
        repaired: what its ranks have repaired for another controller is not repaired again.
        word: an action of the former controller that it did not come to give to all ranks.
        word_for: those of this pod that are to have it.
        steps_ahead: how many steps more MindIO is told where it asks how far the ranks are.
        store_address: host:port of the rendezvous store, empty while there is none.
        store: which store that is, while another one is held still the one before; empty: not told.
        store_held: nobody may reach it yet.
        store_kept: it was filled with what the one before it held.
        rank_table: version of the rank table that ranks start with; empty: none is true for all pods.
        store_wanted: another word than before asks for all that was written into the store here.
        over: this pod's incarnation is over, for good.
        without_mindio: no rank of the job registers with MindIO.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._revision = 0
        self.wanted: dict[int, Wanted] = {}
        self.controller_address = self.store_address = self.controller = ""
        self.stand_ins: frozenset[int] = frozenset()
        self.word, self.word_for = b"", frozenset[int]()
        self.over = self.repaired = self.store_held = self.store_kept = self.without_mindio = False
        self.steps_ahead = 0
        self.store = self.store_wanted = self.rank_table = ""

    def begin_stream(self) -> None:
        """Reset the revision: another coordinator, or the same on another stream, counts its orders anew."""
        self._revision = 0

    @property
    def rank_environment(self) -> Mapping[str, str]:
        """The variables with which the ranks were ordered; empty: none are to run, or nothing is known."""
        return next((one.environment for one in self.wanted.values() if one.run), {})

    def apply_order(self, order: pb.NodeOrder) -> bool:
        """Take an order over; False: it is older than the present one."""
        if order.revision < self._revision:
            log.info("order %d came after %d and is ignored", order.revision, self._revision)
            return False
        self._revision = order.revision
        self.controller_address, self.store_address = order.controller_address, order.store_address
        self.repaired = order.repaired
        self.store_wanted, self.store_held, self.store_kept = order.store_wanted, order.store_held, order.store_kept
        if order.store and not order.store_held:  # whether it is kept is known by then
            self.store = order.store
        self.controller, self.stand_ins = order.controller, frozenset(order.stand_ins)
        self.word, self.word_for = order.word, frozenset(order.word_for)
        self.steps_ahead, self.rank_table = order.steps_ahead, order.rank_table
        self.wanted = {}
        for entry in order.ranks:
            if self._settings.identity.name_pod(entry.rank // self._settings.ranks_per_node, entry.incarnation):
                log.info("this spare is node rank %d from now on", self._settings.node_rank)
            local = self._settings.local_ranks
            if entry.rank not in local:
                log.error("order %d names rank %d, this pod has %s", order.revision, entry.rank, local)
                continue
            name, environment = ProcessName(entry.incarnation, entry.start), dict(entry.environment)
            self.wanted[entry.rank] = Wanted(entry.rank, name, entry.run, entry.admitted, environment, entry.stacks)
        if running := [one for one in self.wanted.values() if one.run]:
            self.without_mindio = all(WITHOUT_MINDIO in one.environment for one in running)
        if order.over and not self.over:
            log.warning("the incarnation of this pod is over, its ranks are ended")
            self.over = True
        return True
