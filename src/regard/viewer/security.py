"""Access control: requests need the page's own origin on this machine, or the token."""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio

from regard.viewer.settings import Settings

__all__ = ["COOKIE", "Gate"]

COOKIE = "regard_token"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
# Allow only the page's own scripts and styles; inline styles are allowed because charts set them.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; worker-src 'self' "
    "blob:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Gate:
    """Middleware that rejects requests that are not meant for the application.

    - The Host must name this server. A foreign name that resolves here (DNS rebinding) is rejected.
    - Requests from another site's page are rejected, except for links to here.
    - With a token, every request must carry it, in `?token=` or in the cookie that the page gets.
    - Bodies are limited in size and time, and so is the number of concurrent requests; event streams count
      separately.
    """

    def __init__(self, app: Any, settings: Settings) -> None:
        self.app, self.settings = app, settings
        self.names = _names(settings)
        self._running = self._streams = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        streams = scope["path"].endswith("/events")
        busy = self._streams >= self.settings.requests if streams else self._running >= self.settings.requests
        if busy:
            await _refuse(send, 429, f"more than {self.settings.requests} requests at once. Wait a moment.")
            return
        self._count(streams, 1)
        try:
            bounded = _Bounded(receive, send, self.settings, self._cookie(scope))
            await self.app(scope, bounded.receive, bounded.send)
        finally:
            self._count(streams, -1)

    def _count(self, streams: bool, by: int) -> None:
        if streams:
            self._streams += by
        else:
            self._running += by

    def _refusal(self, scope: dict[str, Any], headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._knows(host):
            return 421, f"this server is not {host!r}. Use the address that regard view printed."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, f"requests from {origin} are refused; only the viewer's own page may ask."
        # Allow links and bookmarks; reject scripts, images and frames of other sites.
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
        if site not in ("none", "same-origin") and (mode != "navigate" or scope["path"] != "/"):
            return 403, "requests from other sites are refused; only the viewer's own page may ask."
        if self.settings.token is not None and not self._has_token(scope, headers):
            return (
                401,
                "the token is missing or wrong. Open the address that regard view printed, token and all.",
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.settings.body_bytes:
            return 413, f"the request is larger than {self.settings.body_bytes:,} bytes."
        return None

    def _knows(self, host: str) -> bool:
        name = _hostname(host)
        if name is None:
            return False
        if self.settings.host in ("0.0.0.0", "::"):
            # Accept any IP address of this machine, but only this server's own names.
            return name in self.names or _is_address(name)
        return name in self.names

    def _has_token(self, scope: dict[str, Any], headers: dict[str, str]) -> bool:
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given += [] if cookie is None else [cookie.value]
        wanted = (self.settings.token or "").encode()
        return any(secrets.compare_digest(one.encode(), wanted) for one in given)

    def _cookie(self, scope: dict[str, Any]) -> bytes | None:
        if self.settings.token is None or scope["path"] != "/":
            return None
        return f"{COOKIE}={self.settings.token}; HttpOnly; SameSite=Strict; Path=/".encode()


class _Bounded:
    """Counts incoming bytes and their time, and adds our headers to responses."""

    def __init__(self, receive: Any, send: Any, settings: Settings, cookie: bytes | None) -> None:
        self._receive, self._send, self._cookie = receive, send, cookie
        self._left, self._seconds = settings.body_bytes, settings.body_seconds
        self._until = anyio.current_time() + self._seconds
        self._whole = self._refused = False

    async def receive(self) -> dict[str, Any]:
        if self._whole or self._refused:
            return await self._receive()
        try:
            with anyio.fail_after(self._until - anyio.current_time()):
                message = await self._receive()
        except TimeoutError:
            self._refused = True
            await _refuse(
                self._send,
                408,
                f"the request did not arrive within {self._seconds:g} seconds. Send it again.",
            )
            return {"type": "http.disconnect"}
        self._whole = not message.get("more_body", False)
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0 and not self._refused:
                # A body without a Content-Length is too long: cut it off, so that the application sees a
                # disconnected client.
                self._refused = True
                await _refuse(self._send, 413, "the request is too large.")
            if self._refused:
                return {"type": "http.disconnect"}
        return message

    async def send(self, message: dict[str, Any]) -> None:
        if self._refused:
            return
        if message["type"] == "http.response.start":
            extra = HEADERS if self._cookie is None else [*HEADERS, (b"set-cookie", self._cookie)]
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await self._send(message)


async def _refuse(send: Any, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _names(settings: Settings) -> set[str]:
    names = {*LOOPBACK, settings.host.lower()}
    return names if settings.local else {*names, socket.gethostname().lower(), socket.getfqdn().lower()}


def _hostname(host: str) -> str | None:
    """The name in a Host header, without its port; None if it is invalid."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    plain = parts.username is None and not parts.path and not parts.query and not parts.fragment
    return parts.hostname if plain else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
