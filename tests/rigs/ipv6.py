"""Whether this machine has IPv6, whose tests are left out where it has not."""

from __future__ import annotations

import socket

import pytest


def has_ipv6() -> bool:
    """Whether something can listen at ::1: a kernel may have IPv6 and every interface none."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as made:
            made.bind(("::1", 0))
    except OSError:
        return False
    return True


without_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="a machine without IPv6")
