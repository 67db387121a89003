"""torch's TCPStore at one address of this machine, as a pod with a network of its own has it.

Torch before 2.1 binds its store's port at every address, and pods share one network here, where the agents of the other
pods listen on that port at theirs. So the store takes a free port, and what comes to its address is forwarded there.
"""

from __future__ import annotations

import socket
import sys
import threading

from torch.distributed import TCPStore

from e2e.trainer.relay import forward


def serve(host: str, port: int) -> None:
    """Serve until the process ends; the HAJOB_STORE of the image with torch. OSError: the address is taken."""
    with socket.create_server((host, port), backlog=1024) as listener:
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        while True:
            client, _ = listener.accept()
            threading.Thread(target=forward, args=(client, ("127.0.0.1", store.port)), daemon=True).start()


def main() -> None:
    """A training without Kubernetes: HOST and PORT are its arguments; says `listening` when it does."""
    store = TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
    print("listening", flush=True)
    threading.Event().wait()
    del store


if __name__ == "__main__":
    main()
