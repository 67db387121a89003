"""The API server's address and the operator's credentials.

What a kubeconfig names as certificates and ways to a server is left to the `kubernetes` package; it is loaded only
where there is one, because it takes 16 MiB. Paths are given, never assumed: the same operator runs in a pod, as a plain
process and from a shell, and neither `$KUBECONFIG` nor `~/.kube` is read. A service account's token changes on disk
about every hour, so the file is looked at again whenever it has changed, and after a 401. A kubeconfig is read again
after a 401: the plugin that it names has another token then, and its files may be new.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from hajob.kube.kubeconfig import (
    Headers,
    KubeconfigError,
    authorization_of,
    impersonation_of,
    read_context,
    with_printed_credentials,
)

log = logging.getLogger(__name__)

PROXY_SCHEMES: Final = ("http", "https")
"""Of a proxy that aiohttp can talk to."""


class CredentialsError(RuntimeError):
    """Unusable credentials; the message names the file or variable and the remedy."""


@dataclass(slots=True)
class ApiCredentials:
    """An API server and an identity there.

    Attributes:
        server: its URL.
        ca_file: CA of the server; empty: the machine's own CAs.
        certificate_file: client certificate; empty: none.
        key_file: its key.
        verify: False accepts every server, as a kubeconfig can ask for.
        server_name: name in the server's certificate, where it is not that of the URL; empty: it is.
        proxy: URL of the HTTP proxy on the way to the server; empty: there is none.
        impersonation: headers by which each request is one of somebody else.
        namespace: that is meant where none is named.
    """

    server: str
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""
    proxy: str = ""
    impersonation: Headers = ()
    namespace: str = "default"
    _token: str = ""
    _scheme: str = "Bearer"
    _token_file: Path | None = None
    _token_stamp: tuple[int, int] = field(default=(0, 0))
    _kubeconfig: str = ""
    _context: str | None = None
    _refused: bool = False

    @classmethod
    def of_token(cls, server: str, ca_file: str, token: str) -> Self:
        """Return the credentials of a token that stays as it is."""
        return cls(server, ca_file, _token=token)

    def tls_context(self) -> ssl.SSLContext:
        """Return a TLS context for connections to the server."""
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def authorization_header(self) -> Mapping[str, str]:
        """Return the Authorization header of a request; empty with a client certificate."""
        if self._token_file is not None:
            self._reread_token(self._token_file)
        return {"Authorization": f"{self._scheme} {self._token}"} if self._token else {}

    def reload_token(self) -> None:
        """Read the token again at the next request, whatever the file's time says: the server has refused it."""
        self._token_stamp = (0, 0)
        self._refused = True

    async def refresh_kubeconfig(self) -> None:
        """Read a kubeconfig again whose credentials the server has refused; keep them where it cannot be read."""
        if not self._refused:
            return
        self._refused = False
        if self._kubeconfig:
            try:
                # A plugin that answers with no token has failed in its own way; the old token may still be good.
                self._token = (await from_kubeconfig(self._kubeconfig, self._context))._token or self._token
            except CredentialsError as error:
                log.warning("%s", error)

    @property
    def bearer_token(self) -> str:
        """Return the bearer token, empty with a client certificate."""
        return self.authorization_header().get("Authorization", "").removeprefix(f"{self._scheme} ")

    @property
    def scheme(self) -> str:
        """Return what stands before the token: Bearer, or Basic with a name and a password."""
        return self._scheme

    def _reread_token(self, path: Path) -> None:
        """Read the token if the file has changed; an unreadable file leaves the old token in use."""
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._token_stamp:
                self._token = path.read_text(encoding="ascii").strip() or self._token
                self._token_stamp = stamp
        except OSError:
            return


async def from_kubeconfig(path: str, context: str | None = None) -> ApiCredentials:
    """Load the credentials of a context of a kubeconfig; None: of the current one.

    Raises:
        CredentialsError: the file is missing or invalid.
    """
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.kube_config import load_kube_config_from_dict

    configuration = Configuration()
    try:
        found = await asyncio.to_thread(lambda: with_printed_credentials(read_context(path, context)))
        await load_kube_config_from_dict(found.as_kubeconfig(), client_configuration=configuration)
        scheme, _, token = (
            authorization_of(found.user) or str(configuration.api_key.get("BearerToken") or "")
        ).partition(" ")
    except KubeconfigError as error:
        raise CredentialsError(f"no kubeconfig can be used: {error}") from error
    except (ConfigException, OSError, ValueError) as error:
        raise CredentialsError(f"no kubeconfig can be used: {path}: {error}") from error
    if found.user.get("auth-provider") and not token:
        raise CredentialsError(f"no kubeconfig can be used: {path}: its auth-provider gives no token")
    proxy = str(configuration.proxy or "")
    if proxy and urlsplit(proxy).scheme not in PROXY_SCHEMES:  # its URL may hold a password, and is not told
        supported = " and ".join(PROXY_SCHEMES)
        raise CredentialsError(f"no kubeconfig can be used: {path}: only {supported} are supported in its proxy-url")
    return ApiCredentials(
        str(configuration.host).rstrip("/"),
        configuration.ssl_ca_cert or "",
        configuration.cert_file or "",
        configuration.key_file or "",
        bool(configuration.verify_ssl),
        str(configuration.tls_server_name or ""),
        proxy,
        impersonation_of(found.user),
        found.namespace,
        token,
        scheme or "Bearer",
        _kubeconfig=path,
        _context=context,
    )


def from_service_account(directory: str, environment: Mapping[str, str] | None = None) -> ApiCredentials:
    """Load the credentials of a mounted service account, for the server that the environment names.

    Raises:
        CredentialsError: token, CA or address are missing.
    """
    environment = os.environ if environment is None else environment
    token, authority = Path(directory) / "token", Path(directory) / "ca.crt"
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    problem = "" if host and port else "Service host/port is not set."
    problem = problem or next((f"{file} {why}." for file in (token, authority) if (why := _why_unusable(file))), "")
    if problem:
        raise CredentialsError(
            f"service account in {directory} cannot be used: {problem} Check HAJOB_SERVICE_ACCOUNT_DIR, "
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, or set HAJOB_KUBECONFIG."
        )
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ApiCredentials(server, str(authority), _token_file=token)


def _why_unusable(file: Path) -> str:
    """Return why a file of a service account is unusable; empty where it is usable."""
    try:
        return "" if file.read_bytes().strip() else "is empty"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


async def load_credentials(kubeconfig: str, service_account_dir: str) -> ApiCredentials:
    """Load the kubeconfig where one is given, else the service account."""
    if kubeconfig:
        try:
            found = await from_kubeconfig(kubeconfig)
        except CredentialsError as error:
            raise CredentialsError(f"{error}; check HAJOB_KUBECONFIG") from error
        if found.impersonation:  # its frontend, kopf, has no way to send it
            raise CredentialsError(
                f"no kubeconfig can be used: {kubeconfig}: its user acts as somebody else (as), which an operator does "
                "not; check HAJOB_KUBECONFIG"
            )
        return found
    return from_service_account(service_account_dir)
