"""The process of the rendezvous store, apart from the controller's.

Clients of torch's store never connect again, and every rebuild of process groups needs it: so it lives as long as the
ranks of an attempt, even if controller or coordinator end. A later attempt gets a new, empty one, so that none of its
ranks reads keys of the one before, in any version of torch (docs/protocols/sidecar.md, "The rendezvous store").
"""

from __future__ import annotations

import os
from typing import Dict

from trainer_sidecar.controller_host import scheduler, store
from trainer_sidecar.controller_host.part import Part
from trainer_sidecar.controller_protocol import LOST


class StoreProcess(Part):
    """Process that serves the store until the host has closed its end of the pipe."""

    @staticmethod
    def needed_package(environment: Dict[str, str]) -> str:
        """Return the package its Python must have."""
        if environment.get(store.HOOK):
            return environment[store.HOOK].partition(":")[0].partition(".")[0]
        return "mindspore" if scheduler.is_scheduler_wanted(environment) else "torch"

    def run_until_closed(self) -> None:
        """Open the store and stay."""
        request, environment = self.request, dict(os.environ)
        self.open_and_report(
            "listening",
            lambda: store.serve_store(request["address"], request["store_port"], environment, self._report_lost_store),
        )
        self.serve_until_closed(lambda _: None)

    def _report_lost_store(self, problem: str) -> None:
        self.tell_state("lost", problem, LOST)
