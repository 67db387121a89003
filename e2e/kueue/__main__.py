"""Runs the stand-in: `python -m e2e.kueue SETTINGS`, a JSON file that `e2e.kueue.launch` writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from e2e.cluster.rest import ApiClient
from e2e.kueue.manager import Manager
from e2e.kueue.world import Configuration


def main() -> None:
    """Run until ended."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    pki = Path(settings["pki"])
    api = ApiClient(settings["server"], pki / "ca.crt", pki / "admin.crt", pki / "admin.key", "kueue-admission")
    known = settings["configuration"]
    configuration = Configuration(**{**known, "excluded_prefixes": tuple(known["excluded_prefixes"])})
    manager = Manager(api, settings["namespace"], configuration)
    manager.run_for_ever(settings["address"], settings["port"], Path(settings["certificate"]), Path(settings["key"]))


if __name__ == "__main__":
    main()
