"""What the page's server sends: its bundle, and the headers that keep every answer with whoever has asked."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from aiohttp import web

_IMPORT_MAP: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)


def read_static_files() -> dict[str, bytes]:
    """Return the bundle: what is below `static`, by path."""
    found: dict[str, bytes] = {}
    todo = [("", files("hajob.web").joinpath("static"))]
    while todo:
        path, at = todo.pop()
        for one in at.iterdir():
            if one.is_dir():
                todo.append((f"{path}{one.name}/", one))
            else:
                found[path + one.name] = one.read_bytes()
    return found


def content_policy(index: bytes) -> str:
    """Return the page's Content-Security-Policy: own files only, and the one script that stands in the page itself.

    That script is the import map, which no browser loads from a file; it is allowed by its hash.
    """
    hashes = [base64.b64encode(hashlib.sha256(one).digest()).decode() for one in _IMPORT_MAP.findall(index)]
    scripts = " ".join(["'self'", *(f"'sha256-{one}'" for one in hashes)])
    parts = ["default-src 'none'", f"script-src {scripts}", "style-src 'self'", "connect-src 'self'", "img-src 'self'"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"])


HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that a browser names no origin when it posts the form of the login.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer: what it holds is for the one who asked."""


def html_response(content: bytes, status: int = 200) -> web.Response:
    """Return a page under its policy."""
    headers = {**HEADERS, "Content-Security-Policy": content_policy(content)}
    return web.Response(body=content, status=status, headers=headers, content_type="text/html", charset="utf-8")
