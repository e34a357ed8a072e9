"""Access control: only requests from this machine's browser that have the token are served."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOPBACK_HOSTS = {"127.0.0.1", "localhost", "[::1]"}
"""Allowed hosts, with any port since it may be tunnelled. Other names are refused, against DNS rebinding."""
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_REPORT_POLICY = (
    "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox; frame-ancestors 'self'; "
    "base-uri 'none'; form-action 'none'; connect-src 'none'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
_PAGE_HEADERS = {"content-security-policy": _CONTENT_SECURITY_POLICY, "cross-origin-opener-policy": "same-origin"}


def report_key(token: str) -> str:
    """The secret in a report's address, derived from the token, which can't be recovered from it."""
    return hmac.new(token.encode(), b"reports", hashlib.sha256).hexdigest()[:32]


class AccessControl:
    """Allows only requests to localhost, from its own page, whose path begins with the token or the report key."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._key = report_key(token).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on to the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets are served
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in _LOOPBACK_HOSTS and host not in _LOOPBACK_HOSTS:
            await PlainTextResponse("this host is not served", 403)(scope, receive, send)
            return
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            await PlainTextResponse("requests of other pages are refused", 403)(scope, receive, send)
            return
        first = scope["path"].split("/")[1].encode("utf-8", "replace")
        of_report = hmac.compare_digest(first, self._key)
        if not of_report and not hmac.compare_digest(first, self._token):
            await PlainTextResponse("not found: the address that gonogo ui printed has the token", 404)(
                scope, receive, send
            )
            return
        own = {"content-security-policy": _REPORT_POLICY} if of_report else _PAGE_HEADERS

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                _set_headers(message, {**_HEADERS, **own})
            await send(message)

        await self._app(scope, receive, sent)


def _set_headers(message: Message, headers: dict[str, str]) -> None:
    kept: list[Any] = [pair for pair in message.get("headers", []) if pair[0].decode("latin-1").lower() not in headers]
    message["headers"] = [*kept, *((name.encode(), value.encode()) for name, value in headers.items())]
