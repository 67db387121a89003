"""Tokens of service accounts, bound to pods or not, and their review."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.memory_api.resources import Target
from hajob.api.base import Json


@dataclass(frozen=True, slots=True)
class _Token:
    namespace: str
    account: str
    audiences: tuple[str, ...]
    pod_name: str
    pod_uid: str


class Tokens:
    """All tokens that were issued."""

    def __init__(self) -> None:
        self._issued: dict[str, _Token] = {}

    def issue(self, account: Target, spec: Json) -> Json:
        """A new token, as the `token` subresource of a service account answers."""
        bound = spec.get("boundObjectRef") or {}
        audiences = tuple(spec.get("audiences") or ["https://kubernetes.default.svc"])
        name = f"token-{len(self._issued) + 1}"
        self._issued[name] = _Token(
            account.namespace, account.name, audiences, bound.get("name", ""), bound.get("uid", "")
        )
        return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": {"token": name}}

    def review(self, spec: Json, is_alive: Callable[[str, str, str], bool]) -> Json:
        """The status of a TokenReview; a token that is bound to a pod dies with it."""
        token = self._issued.get(spec["token"])
        if token is None or (token.pod_name and not is_alive(token.namespace, token.pod_name, token.pod_uid)):
            return {"status": {"user": {}, "error": "invalid bearer token"}}
        audiences = [each for each in spec.get("audiences") or token.audiences if each in token.audiences]
        if not audiences:
            return {"status": {"user": {}, "error": "token audiences do not match"}}
        prefix = "authentication.kubernetes.io"
        extra = {}
        if token.pod_name:
            extra = {f"{prefix}/pod-name": [token.pod_name], f"{prefix}/pod-uid": [token.pod_uid]}
        user = {"username": f"system:serviceaccount:{token.namespace}:{token.account}", "extra": extra}
        return {"status": {"authenticated": True, "audiences": audiences, "user": user}}
