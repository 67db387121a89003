"""Entry of the host's child processes: the MindIO controller or the rendezvous store.

The host forks the child, which goes on in the image's Python that has the packages it needs.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Dict, List

from trainer_sidecar.controller_host import interpreter
from trainer_sidecar.controller_host.controller import ControllerProcess
from trainer_sidecar.controller_host.part import STORE
from trainer_sidecar.controller_host.store_process import StoreProcess
from trainer_sidecar.controller_protocol import Message

NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""The coordinator has no chip and no driver: `import torch` (2.5 and newer) would fail in the device's extension."""


def run_part(part: str, request: Message, read_end: int, write_end: int, *, may_change: bool) -> None:
    """Run `part` until the host closes the pipe; `may_change`: look for the Python that has the needed package."""
    os.environ.update(request.get("environment", {}))
    os.environ.update(NO_AUTOLOAD)
    process = StoreProcess if part == STORE else ControllerProcess
    package = process.needed_package(dict(os.environ))
    if may_change:
        python = interpreter.find_python_with(package, ControllerProcess.needed_package({}), dict(os.environ))
        if python not in (None, sys.executable):
            sys.stderr.write("hajob: the %s is run by %s, which has %s\n" % (part, python, package))
            interpreter.replace_process(str(python), part, request, read_end, write_end)
    process(part, request, read_end, write_end).run_until_closed()


def run_part_from_words(words: List[str]) -> None:
    """Enter in another Python: the part, both pipes, the request."""
    request: Dict[str, object] = json.loads(words[3])
    run_part(words[0], request, int(words[1]), int(words[2]), may_change=False)
