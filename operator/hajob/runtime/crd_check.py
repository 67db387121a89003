"""Looks, now and then, whether the installed CRD is this operator's.

An older one is a reason not to be ready: the API server would drop or refuse what this operator writes, so a rolling
upgrade that forgot the CRD stops at its first pod and the version before goes on leading. A newer one is what a
roll-back leaves behind: it is told, and served (docs/decisions/0020-versions-between-operator-and-sidecars.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from hajob.api.crd_difference import CRD_NAMES, CrdDifference, difference
from hajob.domain.text import some
from hajob.runtime import metrics
from hajob.runtime.clock import Clock
from hajob.runtime.kube import ApiError, Kube

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 60.0


class CrdCheck:
    """The installed CRD, as it was when it was last looked at.

    Attributes:
        found: how it differs from this operator's; no difference until it was looked at.
    """

    def __init__(self, kube: Kube, clock: Clock, changed: Callable[[], None]) -> None:
        self._kube, self._clock, self._changed = kube, clock, changed
        self._said = ""
        self.found = CrdDifference()

    @property
    def older(self) -> str:
        """What an older CRD lacks, in a sentence; empty where it lacks nothing."""
        if not self.found.lacking:
            return ""
        return f"the CRD is older than this operator, it lacks {some(self.found.lacking)}: kubectl apply -f crds/"

    @property
    def newer(self) -> str:
        """What a newer CRD has that this operator does not read; empty where it reads everything."""
        if not self.found.unknown:
            return ""
        return f"the CRD is newer than this operator, which does not read {some(self.found.unknown)}"

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(CHECK_SECONDS)

    async def look(self) -> None:
        """Look once; where the server does not say, what was known stays known."""
        try:
            each = [await self._difference(name) for name in CRD_NAMES]
        except ApiError as error:
            self._say(f"the installed CRDs cannot be compared with this operator's: {error}" if error.status else "")
            return
        found = CrdDifference(
            tuple(place for one in each for place in one.lacking), tuple(place for one in each for place in one.unknown)
        )
        news, self.found = found != self.found, found
        metrics.CRD_DIFFERENCES.labels("older").set(len(found.lacking))
        metrics.CRD_DIFFERENCES.labels("newer").set(len(found.unknown))
        self._say("; ".join(filter(None, (self.older, self.newer))))
        if news:
            self._changed()

    async def _difference(self, name: str) -> CrdDifference:
        try:
            return difference(await self._kube.get("customresourcedefinitions", "", name))
        except ApiError as error:
            if error.status == 404:
                return CrdDifference(lacking=(f"all of {name}",))
            raise

    def _say(self, sentence: str) -> None:
        """Once for each thing to say."""
        if sentence and sentence != self._said:
            log.warning(sentence)
        self._said = sentence
