"""Keep signals that arrive while a process starts, before it has handlers for them.

The first process of a container gets no signal that it has no handler for: the kernel drops it, and the deletion of the
pod waits for its whole grace period. A blocked signal is kept by the kernel instead. So each entry blocks the signals
before it imports anything else, and unblocks them when their handlers are installed. Part of every archive that
`trainer_sidecar.install` packs: standard library, Python >= 3.7.
"""

import signal

ENDING = (signal.SIGTERM, signal.SIGINT)
"""Signals that ask a process to end."""


def block_signals() -> None:
    """Block these signals; the first statement of an entry. Threads made meanwhile leave them to the main one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def unblock_signals() -> None:
    """Deliver blocked and later signals; their handlers are installed."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
