"""What can go wrong on a machine nobody prepared, said to the person who sits there: what, where, what to do."""

from __future__ import annotations

import re
from pathlib import Path

NETWORK = re.compile(
    r"no such host|connection refused|i/o timeout|proxyconnect|network is unreachable|TLS handshake|"
    r"NewConnectionError|ConnectTimeout|Connection refused|ProxyError|Temporary failure in name resolution|"
    r"Read timed out|connection reset|server misbehaving|certificate verify failed|x509:",
    re.IGNORECASE,
)
DISK = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
MEMORY = re.compile(r"signal: killed|cannot allocate memory|out of memory", re.IGNORECASE)
LAST_LINES = 12


class SetupError(Exception):
    """Set-up cannot go on; the message says what to do. What is done so far stays, the next run goes on."""


def explain(what: str, output: str, log: Path, settings: str) -> SetupError:
    """The error for a failed command, by the words it left.

    Args:
        what: What was being done, for example "building etcd 3.7.3".
        output: What the command printed.
        log: Where that is kept.
        settings: Settings that decide where it loads from, named when the network is at fault.
    """
    last = "\n".join(f"    {line}" for line in output.splitlines()[-LAST_LINES:])
    if DISK.search(output):
        advice = (
            f"The disk is full. Free some space, or set HAJOB_CACHE to a directory with more ({log.parent} is on it)."
        )
    elif MEMORY.search(output):
        advice = (
            "It was killed, most likely for want of memory: linking kube-apiserver takes 2 GiB. Close other programs."
        )
    elif NETWORK.search(output):
        advice = f"The network or the registry does not answer. Connect, or set {settings}."
    else:
        advice = "The last lines above say why."
    return SetupError(f"{what} failed:\n{last}\n{advice}\nAll output: {log}\nThen type the command again: it goes on.")
