"""The door of a page on one's own machine: one person, whose browser was opened with a key.

Other users of the machine reach the port, too, and any web page can make a browser ask it. So each request needs the
key, as a cookie that only this page's own requests carry, and has to name this server as its host: a foreign name that
was pointed at 127.0.0.1 (DNS rebinding) is refused.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final

from aiohttp import web

from hajob.web.live import LiveCluster

_KEY_BYTES: Final = 32
ADDRESS: Final = "127.0.0.1"
_HOSTS: Final = (ADDRESS, "localhost")
_KEY: Final = "key"
"""Name of the key in the address that opens the page; the page takes it out of there at once."""


class LocalDoor:
    """Lets in who has the key, to the one cluster.

    Attributes:
        key: of this server; another start has another one.
        port: on which it listens; known only once it does.
    """

    def __init__(self, cluster: LiveCluster) -> None:
        self.key, self.port = secrets.token_urlsafe(_KEY_BYTES), 0
        self._cluster = cluster

    @property
    def address(self) -> str:
        """Return the address that opens the page."""
        return f"http://{ADDRESS}:{self.port}/?{_KEY}={self.key}"

    async def cluster_of(self, request: web.Request) -> LiveCluster:
        """Return the cluster for a request that has the key."""
        self._check_host(request)
        if not self._is_key_of_server(request.cookies.get(self._name_of_cookie, "")):
            raise web.HTTPForbidden(text="open the address that kubectl hajob ui has printed\n")
        return self._cluster

    def add_routes_of_door(self, router: web.UrlDispatcher) -> None:
        """Add nothing: nobody logs in here."""

    def answer_first_visit(self, request: web.Request, page: web.Response) -> web.Response:
        """Return the page for who has the key, in the address or as a cookie, and keep it as a cookie."""
        self._check_host(request)
        shown = request.query.get(_KEY, "") or request.cookies.get(self._name_of_cookie, "")
        if not self._is_key_of_server(shown):
            raise web.HTTPForbidden(text="open the address that kubectl hajob ui has printed\n")
        page.set_cookie(self._name_of_cookie, self.key, httponly=True, samesite="Strict", path="/")
        return page

    @property
    def _name_of_cookie(self) -> str:
        # Cookies do not tell ports apart: two pages at once have two names.
        return f"hajob-ui-{self.port}"

    def _is_key_of_server(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(), self.key.encode())

    def _check_host(self, request: web.Request) -> None:
        if request.headers.get("Host") not in {f"{host}:{self.port}" for host in _HOSTS}:
            raise web.HTTPForbidden(text=f"ask for {ADDRESS}:{self.port}\n")
