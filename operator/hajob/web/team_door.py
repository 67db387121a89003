"""The door of a page for a team: whoever logs in with a token of the cluster sees what that token may see.

The server has no rights of its own, and no token. Each person's is kept in memory only, behind a cookie that scripts
cannot read, or comes with each request from a proxy that logs people in (`Authorization: Bearer`). Every person has
connections, watches and caches of their own: nothing that one may read reaches another.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import web

from hajob.clock import Clock
from hajob.kube.client import ApiError, Kube
from hajob.kube.credentials import ApiCredentials
from hajob.kube.http import HttpKube
from hajob.web.live import LiveCluster, Scope
from hajob.web.responses import HEADERS, html_response

MOST_PEOPLE: Final = 64
"""Of each the jobs and pods that they may see are in memory."""
IDLE_SECONDS: Final = 15 * 60.0
"""Without a page open and without a request; then a person logs in anew."""
LONGEST_SECONDS: Final = 12 * 3600.0
"""A working day: no page that was forgotten keeps a token for longer."""
_COOKIE: Final = "hajob-session"
_TELLS_PAGE: Final = "hajob-team"
"""A cookie without a secret, by which the page knows that one can log out."""
_BEARER: Final = "Bearer "
_LONGEST_TOKEN: Final = 16_384
_REVIEW: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ANONYMOUS: Final = "system:anonymous"


@dataclass
class RemoteCluster:
    """The API server at an address; `ca_file` holds the CA that it is known by."""

    server: str
    ca_file: str

    async def connect_as(self, token: str, resources: AsyncExitStack) -> Kube:
        """Return a client with this token, which ends with the resources."""
        credentials = ApiCredentials.of_token(self.server, self.ca_file, token)
        return await resources.enter_async_context(HttpKube(credentials, "hajob-ui"))


class LoginError(Exception):
    """Somebody is not let in; the text is for the person who tried."""


@dataclass(slots=True)
class _Session:
    """One person who has logged in; the token itself only the connections know."""

    cluster: LiveCluster
    resources: AsyncExitStack
    began: float
    used: float


class TeamDoor:
    """Lets in whoever has a token that the API server accepts.

    Args:
        remote: the API server.
        clock: for the ends of sessions.
        scope: what is shown; each person may narrow it to a namespace.
    """

    def __init__(self, remote: RemoteCluster, clock: Clock, scope: Scope) -> None:
        self._remote, self._clock, self._scope = remote, clock, scope
        self._sessions: dict[str, _Session] = {}
        # Two requests of one person that arrive together make one session, not two.
        self._turn = asyncio.Lock()

    async def cluster_of(self, request: web.Request) -> LiveCluster:
        """Return the cluster of whoever asks, as they may see it."""
        bearer = request.headers.get("Authorization", "")
        if bearer.startswith(_BEARER):
            token = bearer.removeprefix(_BEARER).strip()
            # The session of a token is found by its hash: in memory stands no list of tokens.
            key = hashlib.sha256(token.encode()).hexdigest()
            try:
                return (await self._find_or_begin(key, token, "")).cluster
            except LoginError as refusal:
                raise web.HTTPUnauthorized(text=f"{refusal}\n") from None
        await self._end_old_sessions()
        session = self._sessions.get(request.cookies.get(_COOKIE, ""))
        if session is None:
            raise web.HTTPUnauthorized(text="log in first\n")
        session.used = self._clock.monotonic()
        return session.cluster

    def add_routes_of_door(self, router: web.UrlDispatcher) -> None:
        """Add the pages by which people come and go, and what the kubelet asks."""
        router.add_post("/login", self._answer_login)
        router.add_post("/logout", self._answer_logout)
        router.add_get("/healthz", self._answer_alive)

    def answer_first_visit(self, request: web.Request, page: web.Response) -> web.Response:
        """Return the page for who has logged in, the form for whoever has not."""
        is_known = request.cookies.get(_COOKIE, "") in self._sessions
        if is_known or request.headers.get("Authorization", "").startswith(_BEARER):
            return page
        return login_page("")

    async def end_sessions(self) -> None:
        """End all sessions."""
        for key in list(self._sessions):
            await self._end_session(key)

    async def _answer_login(self, request: web.Request) -> web.Response:
        form = await request.post()
        token, namespace = str(form.get("token", "")).strip(), str(form.get("namespace", "")).strip()
        key = secrets.token_urlsafe(32)
        try:
            await self._find_or_begin(key, token, namespace)
        except LoginError as refusal:
            return login_page(str(refusal), status=401)
        # A page that came by TLS must never send its cookie without; behind a proxy only the proxy knows.
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        answer = web.Response(status=303, headers={**HEADERS, "Location": "./"})
        answer.set_cookie(_COOKIE, key, httponly=True, samesite="Strict", secure=secure, path="/")
        answer.set_cookie(_TELLS_PAGE, "1", samesite="Strict", secure=secure, path="/")
        return answer

    async def _answer_logout(self, request: web.Request) -> web.Response:
        await self._end_session(request.cookies.get(_COOKIE, ""))
        answer = web.Response(status=303, headers={**HEADERS, "Location": "./"})
        for name in (_COOKIE, _TELLS_PAGE):
            answer.del_cookie(name, path="/")
        return answer

    async def _answer_alive(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def _find_or_begin(self, key: str, token: str, namespace: str) -> _Session:
        """Return the session with this key, or begin one.

        Raises:
            LoginError: the API server does not accept the token, or cannot be reached, or too many people are here.
        """
        async with self._turn:
            await self._end_old_sessions()
            session = self._sessions.get(key)
            if session is None:
                session = self._sessions[key] = await self._begin_session(token, namespace)
            session.used = self._clock.monotonic()
            return session

    async def _begin_session(self, token: str, namespace: str) -> _Session:
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            raise LoginError("this is no token")
        if len(self._sessions) >= MOST_PEOPLE:
            raise LoginError(f"{MOST_PEOPLE} people are logged in already: try again later")
        async with AsyncExitStack() as resources:
            kube = await self._remote.connect_as(token, resources)
            await _check_token(kube)
            scope = replace(self._scope, namespace=namespace or self._scope.namespace)
            cluster = await resources.enter_async_context(LiveCluster(kube, self._clock, scope))
            now = self._clock.monotonic()
            return _Session(cluster, resources.pop_all(), now, now)

    async def _end_old_sessions(self) -> None:
        now = self._clock.monotonic()
        for key, session in list(self._sessions.items()):
            # A page that is open asks for nothing more: its stream is its use.
            is_idle = not session.cluster.streams and now - session.used > IDLE_SECONDS
            if is_idle or now - session.began > LONGEST_SECONDS:
                await self._end_session(key)

    async def _end_session(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            session.cluster.is_over = True
            await session.resources.aclose()


async def _check_token(kube: Kube) -> None:
    """Ask the API server whose a token is: to the owner of each one it answers.

    Raises:
        LoginError: it does not accept the token, or cannot be reached.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        told = await kube.transport.send_request("POST", _REVIEW, query={}, body=body)
    except ApiError as error:
        if error.status == 401:
            raise LoginError("the cluster does not accept this token") from None
        raise LoginError(f"the cluster does not say whose the token is: {error}") from None
    name = (((told.get("status") or {}).get("userInfo")) or {}).get("username")
    # A server that lets strangers in answers them, too: such a page would be anybody's.
    if not name or name == _ANONYMOUS:
        raise LoginError("the cluster does not accept this token")


_FORM: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Hajob</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="static/style.css"></head>
<body><main class="login"><h1>Hajob</h1>
<p class="soft">Log in with a token of the cluster; you see what it may see.<br>
用集群的 token 登录；你看到的是该 token 有权看到的内容。</p>
<p class="soft"><code>kubectl create token NAME -n NAMESPACE</code></p>{problem}
<form method="post" action="login" autocomplete="off">
<label for="token">Token</label><input id="token" name="token" type="password" required autofocus>
<label for="namespace">Namespace (empty: all, 留空为全部)</label><input id="namespace" name="namespace">
<button>Log in 登录</button></form></main></body></html>
"""


def login_page(problem: str, status: int = 200) -> web.Response:
    """Return the form, with why somebody was not let in."""
    told = f'<p class="notice bad" role="alert">{html.escape(problem)}</p>' if problem else ""
    return html_response(_FORM.replace("{problem}", told).encode(), status)
