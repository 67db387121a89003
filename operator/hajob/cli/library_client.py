"""Clients of the package kubernetes, for what the standard library does not do: streams into pods, proxies.

They act as the user of a kubeconfig as kubectl does, which the package itself does not: see `hajob.kube.kubeconfig`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from hajob.clock import SystemClock
from hajob.kube.kubeconfig import (
    USUAL_FILE,
    Headers,
    KubeconfigContext,
    KubeconfigError,
    authorization_of,
    impersonation_of,
    read_context,
    with_printed_credentials,
)
from hajob.sources.reading import mapping, milliseconds_of


def files_of_kubeconfig(kubeconfig: str | None) -> str:
    """Return the files that kubectl would read: the one given, those of `$KUBECONFIG`, or the usual one."""
    return kubeconfig or os.environ.get("KUBECONFIG") or USUAL_FILE


def load_kubeconfig(kubeconfig: str | None, context: str | None) -> tuple[Any, str]:
    """Return a client of the package kubernetes, and the namespace that is meant where none is named.

    Args:
        kubeconfig: a file; None: `$KUBECONFIG` or the usual one.
        context: of the kubeconfig; None: the current one.

    Raises:
        KubeconfigError: there is no kubeconfig, or it cannot be used.
    """
    found = read_context(files_of_kubeconfig(kubeconfig), context)
    return client_of_context(found), found.namespace


def client_of_context(context: KubeconfigContext) -> Any:  # noqa: ANN401  the client has no types
    """Return a client of the package kubernetes that acts as the user of a context.

    Raises:
        KubeconfigError: its kubeconfig cannot be used.
    """
    from kubernetes import config

    try:
        known = with_printed_credentials(context)
        made = config.new_client_from_config_dict(known.as_kubeconfig())
    except (config.ConfigException, OSError) as problem:
        raise KubeconfigError(str(problem)) from None
    except ImportError:  # PySocks, which is not installed with this
        raise KubeconfigError("its proxy is SOCKS, and only http and https are supported") from None
    # The package would go on as nobody, and the server's refusal would name the wrong cause.
    if known.user.get("auth-provider") and not made.configuration.api_key:
        named = mapping(known.user["auth-provider"]).get("name")
        raise KubeconfigError(f"its auth-provider {named} gives no token; kubectl has exec now")
    if known.expires:
        made.configuration.refresh_api_key_hook = _Renewal(context, known.expires).renew_token
    if impersonation := impersonation_of(known.user):
        made.rest_client = _OnBehalf(made.rest_client, impersonation)
    return made


class _Renewal:
    """Asks the program of a kubeconfig again once what it has printed is no longer good."""

    def __init__(self, context: KubeconfigContext, expires: str) -> None:
        self._context, self._expires = context, expires

    def renew_token(self, configuration: Any) -> None:  # noqa: ANN401  the client has no types
        """Put a new token where the old one has expired; one that cannot be had leaves the server to refuse it."""
        expires_ms = milliseconds_of(self._expires)
        if expires_ms is None or SystemClock().now_milliseconds() < expires_ms:
            return
        with suppress(KubeconfigError):
            printed = with_printed_credentials(self._context)
            self._expires = printed.expires
            configuration.api_key["BearerToken"] = authorization_of(printed.user)


class _OnBehalf:
    """Sends the requests of the package kubernetes with headers that may come more than once, which it cannot."""

    def __init__(self, sender: Any, headers: Headers) -> None:  # noqa: ANN401  the client has no types
        self._sender, self.headers = sender, headers

    def request(self, method: str, url: str, headers: Mapping[str, str] | None = None, **others: Any) -> Any:  # noqa: ANN401
        """Send one request."""
        from urllib3 import HTTPHeaderDict

        made = HTTPHeaderDict(headers or {})
        for name, value in self.headers:
            made.add(name, value.encode().decode("latin-1"))  # as which http.client writes it
        return self._sender.request(method, url, headers=made, **others)


def websocket_call(api_client: Any) -> Callable[..., Any]:  # noqa: ANN401  the client has no types
    """Return the call by which the package kubernetes opens a stream, with the headers of who acts for somebody else.

    The package hands on no header but that of the token.
    """
    from kubernetes.stream import ws_client
    from websocket import WebSocket

    # By itself the client also keeps everything that it has read, however long one follows.
    usual = partial(ws_client.websocket_call, capture_all=False)
    if not isinstance(api_client.rest_client, _OnBehalf):
        return usual
    lines = [f"{name}: {value}" for name, value in api_client.rest_client.headers]

    class _SocketOnBehalf(WebSocket):
        def connect(self, url: str, **options: Any) -> None:  # noqa: ANN401
            options["header"] = [*options.get("header", ()), *lines]
            super().connect(url, **options)  # type: ignore[no-untyped-call]

    def call(*asked: Any, **named: Any) -> Any:  # noqa: ANN401
        before = ws_client.WebSocket
        ws_client.WebSocket = _SocketOnBehalf
        try:
            return usual(*asked, **named)
        finally:
            ws_client.WebSocket = before

    return call
