"""Who may speak to whom: TLS both ways, names made of the job's UID.

Certificates carry no address, because pods have none beforehand: the name in them says role and job, and the side that
dials overrides the name it expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import grpc

from trainer_sidecar.tls import read

SERVER_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 20),
    # An operator whose machine is gone, or that is stopped, hangs up nothing; only then do standing orders count.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
)
REDIAL_MILLISECONDS = 1000


def channel_credentials(directory: Path) -> grpc.ChannelCredentials:
    """Build the credentials of a client with a certificate; files `ca.crt`, `tls.crt`, `tls.key`."""
    authority, key, certificate = read(directory)
    return grpc.ssl_channel_credentials(authority, key, certificate)


def channel_options(server_name: str) -> tuple[tuple[str, str | int], ...]:
    """Build the options of a channel, which is used for one attempt: it must not share the back-off of earlier ones."""
    return (
        ("grpc.ssl_target_name_override", server_name),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.min_reconnect_backoff_ms", REDIAL_MILLISECONDS),
        ("grpc.initial_reconnect_backoff_ms", REDIAL_MILLISECONDS),
        ("grpc.max_receive_message_length", 64 << 20),
    )


def peer_is(auth_context: Mapping[str, Iterable[bytes]], name: str) -> bool:
    """Return whether the certificate on the other side is made out to `name`."""
    names = auth_context.get("x509_subject_alternative_name", ())
    return name.encode() in names
