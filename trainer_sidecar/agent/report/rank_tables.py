"""Which rank table this pod has, and whether its ranks may start with it."""

from __future__ import annotations

from hajob.protocol import sidecar_pb2 as pb
from trainer_sidecar.agent.report.ports import AgentPorts


class RankTables:
    """The rank table as this pod's ranks need it: which is there, and which they are started with.

    Args:
        ports: write it.
        is_wanted: this pod has one.
    """

    def __init__(self, ports: AgentPorts, *, is_wanted: bool) -> None:
        self._ports, self._is_wanted = ports, is_wanted
        self._newest: pb.RankTable | None = None
        self._written = ""  # version of the table that is there
        self.problem = ""  # why the newest one cannot be written, in words

    def take_table(self, table: pb.RankTable) -> None:
        """Take the newest table, and write it."""
        self._newest = table
        self.write_again()

    def write_again(self) -> bool:
        """Write the newest table if it is not there; return whether that has changed anything."""
        if not self._is_wanted or self._newest is None or self._newest.version == self._written:
            return False
        before, self.problem = self.problem, self._ports.write_rank_table(self._newest)
        if not self.problem:
            self._written = self._newest.version
        return not self.problem or self.problem != before

    def has_table_to_start(self, wanted: str) -> bool:
        """Return whether ranks may be started: the table is there that the coordinator wants them to start with."""
        return not self._is_wanted or (bool(wanted) and wanted == self._written)
