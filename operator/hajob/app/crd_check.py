"""Checks periodically whether the installed CRD matches this operator.

With an older CRD the operator is not ready: the API server would drop or refuse what this operator writes, so a
rolling upgrade that forgot the CRD stops at its first pod and the previous version stays leader. A newer one, as after
a roll-back, is reported and served (docs/decisions/0020-versions-between-operator-and-sidecars.md).
"""

from __future__ import annotations

import logging
from typing import Final

from hajob import metrics
from hajob.api.crd_difference import CRD_NAMES, CrdDifference, compare_crd
from hajob.app.core import OperatorCore
from hajob.clock import Clock
from hajob.domain.text import first_of_list
from hajob.kube.client import ApiError, Kube

log = logging.getLogger(__name__)

# An admin who has applied the CRD waits for the words to go; a request a minute costs the server nothing.
CHECK_SECONDS: Final = 60.0


class CrdCheck:
    """The installed CRD, as it was when it was last looked at.

    Attributes:
        found: how it differs from this operator's; no difference until it was looked at.
    """

    def __init__(self, kube: Kube, clock: Clock, core: OperatorCore) -> None:
        self._kube, self._clock, self._core = kube, clock, core
        self._said = ""
        self.found = CrdDifference()

    @property
    def older(self) -> str:
        """Return what an older CRD lacks, in a sentence; empty where it lacks nothing."""
        if not self.found.lacking:
            return ""
        return (
            f"the CRD is older than this operator, it lacks {first_of_list(self.found.lacking)}: kubectl apply -f crds/"
        )

    @property
    def newer(self) -> str:
        """Return what a newer CRD has that this operator does not read; empty where it reads everything."""
        if not self.found.unknown:
            return ""
        return f"the CRD is newer than this operator, which does not read {first_of_list(self.found.unknown)}"

    async def compare_for_ever(self) -> None:
        """Check until cancelled."""
        while True:
            await self.compare_once()
            await self._clock.sleep(CHECK_SECONDS)

    async def compare_once(self) -> None:
        """Check once; if the server does not answer, keep the last result."""
        try:
            each = [await self._compare_installed(name) for name in CRD_NAMES]
        except ApiError as error:
            self._log_once(
                f"the installed CRDs cannot be compared with this operator's: {error}" if error.status else ""
            )
            return
        found = CrdDifference(
            tuple(place for one in each for place in one.lacking), tuple(place for one in each for place in one.unknown)
        )
        news, self.found = found != self.found, found
        metrics.CRD_DIFFERENCES.labels("older").set(len(found.lacking))
        metrics.CRD_DIFFERENCES.labels("newer").set(len(found.unknown))
        self._log_once("; ".join(filter(None, (self.older, self.newer))))
        if news:
            self._core.handle_changed_crd(self.older)

    async def _compare_installed(self, name: str) -> CrdDifference:
        try:
            return compare_crd(await self._kube.get_object("customresourcedefinitions", "", name))
        except ApiError as error:
            if error.status == 404:
                return CrdDifference(lacking=(f"all of {name}",))
            raise

    def _log_once(self, sentence: str) -> None:
        """Log a sentence, once until it changes."""
        if sentence and sentence != self._said:
            log.warning(sentence)
        self._said = sentence
