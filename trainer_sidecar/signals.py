"""Signals that arrive while a process starts, which no handler can take yet.

The first process of a container gets no signal that it has no handler for: the kernel drops it, and whoever deletes the
pod at that moment waits for its whole grace period. A blocked signal is kept by the kernel instead. So each entry holds
the signals before it imports anything else, and lets them through when their handlers are there. Part of every archive
that `trainer_sidecar.install` packs: standard library, Python >= 3.7.
"""

import signal

ENDING = (signal.SIGTERM, signal.SIGINT)
"""What asks a process to end."""


def hold() -> None:
    """Let the kernel keep them; the first statement of an entry. Threads made meanwhile leave them to the main one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def let_through() -> None:
    """Deliver what was kept, and what comes from now on; their handlers are installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
