"""torchrun with the real TaskD's patch (HAJOB_TASKD): `python3 -m e2e.taskd.real_torchrun OPTIONS SCRIPT ARGUMENTS`.

TaskD's proxy listens at 127.0.0.1:9602 in every pod. Where pods share one network, that is the address of the pod that
stands for its loopback. Debian's torch 1.13 runs under Python 3.11, where it reads its own default of `--redirects` as
None; that is set right, too.
"""

from __future__ import annotations

import importlib
import os


def main() -> None:
    """Patch torch as the image of a user of TaskD does, and run it."""
    addresses = importlib.import_module("taskd.python.framework.common.type")
    addresses.LOCAL_HOST = os.environ.get("HAJOB_LOCAL_ADDRESS", addresses.LOCAL_HOST)  # type: ignore[attr-defined]
    importlib.import_module("taskd.python.adaptor.patch")
    streams = importlib.import_module("torch.distributed.elastic.multiprocessing.api").Std
    streams.from_str = lambda text: streams(int(text))
    importlib.import_module("torch.distributed.run").main()


if __name__ == "__main__":
    main()
