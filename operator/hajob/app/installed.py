"""Checks from inside the cluster that Hajob is installed correctly: what `helm test` runs.

    python -m hajob.app.installed

It uses the operator's own service account and checks that the CRD is this version's and a leader renews its Lease.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from hajob import version
from hajob.api.constants import CRD_NAME
from hajob.api.crd_difference import compare_crd
from hajob.app.settings import Settings
from hajob.clock import Clock, SystemClock
from hajob.kube.client import ApiError, Kube
from hajob.kube.credentials import load_credentials
from hajob.kube.http import HttpKube

# An operator that has just been installed pulls its image, lists the cluster and stands for leader.
PATIENCE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 1.0


async def problem_after_install(kube: Kube, clock: Clock, settings: Settings) -> str:
    """Check until all is well and the Lease is renewed, for a minute at most; return the problem, or an empty text."""
    first = ""
    end = clock.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            wrong, renewed = await _problem_and_renewal(kube, settings)
        except ApiError as error:
            wrong, renewed = str(error), ""
        if not wrong and first and renewed > first:
            return ""
        first = first or renewed
        if clock.monotonic() >= end:
            return wrong or "no operator has renewed its Lease"
        await clock.sleep(LOOK_SECONDS)


async def _problem_and_renewal(kube: Kube, settings: Settings) -> tuple[str, str]:
    """Return the problem and the Lease's renewTime; times of one format sort as text."""
    lacking = compare_crd(await kube.get_object("customresourcedefinitions", "", CRD_NAME)).lacking
    if lacking:
        return f"the CRD {CRD_NAME} lacks {', '.join(lacking)}: it is older than this operator", ""
    lease = (await kube.get_object("leases", settings.namespace, settings.lease_name)).get("spec") or {}
    if not lease.get("holderIdentity"):
        return f"the Lease {settings.namespace}/{settings.lease_name} has no holder: no operator leads", ""
    return "", str(lease.get("renewTime", ""))


async def check_and_print() -> int:
    """Check, and print the result."""
    settings = Settings.from_environment()
    credentials = await load_credentials(settings.kubeconfig, settings.service_account_dir)
    async with HttpKube(credentials) as kube:
        found = await problem_after_install(kube, SystemClock(), settings)
    print(found or "Hajob is installed: the CRD is this version's, and an operator leads", file=sys.stderr)
    return 1 if found else 0


def main() -> int:
    """Run as the entry point."""
    return 0 if version.print_if_asked("installed", sys.argv[1:]) else asyncio.run(check_and_print())


if __name__ == "__main__":
    sys.exit(main())
