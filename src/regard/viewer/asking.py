"""The server's answers without a server: a request handed to the application in this process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import unquote

__all__ = ["Answer", "ask"]


class Answer(NamedTuple):
    """What the application said: HTTP's number, its headers with small letters, and the bytes."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def is_json(self) -> bool:
        return self.headers.get("content-type", "").startswith("application/json")


def ask(app: Any, path: str, method: str = "GET", body: Any = None) -> Answer:
    """Ask an application of `create_app` as a page would; every check that a request meets, this one meets.

    >>> from regard.viewer import create_app
    >>> answer = ask(create_app(), "/api/worked")
    >>> answer.status, json.loads(answer.content)
    (200, {'names': ['cat', 'three']})
    """
    content = b"" if body is None else json.dumps(body).encode()
    where, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1"), (b"content-length", str(len(content)).encode())]
    if content:
        headers.append((b"content-type", b"application/json"))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(where),
        "raw_path": where.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 0),
    }
    return _run(_answer(app, scope, content))


def _run(answer: Coroutine[Any, Any, Answer]) -> Answer:
    """Wait for an answer, also where a loop runs already, as it does under every cell of a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(answer)
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, answer).result()


async def _answer(app: Any, scope: dict[str, Any], content: bytes) -> Answer:
    status, headers, parts, given = 500, {}, [], [content]

    async def receive() -> dict[str, Any]:
        if given:
            return {"type": "http.request", "body": given.pop(), "more_body": False}
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:
        # Starlette raises again what it has answered with a sentence, for a server to log.
        if not parts:
            raise
    return Answer(status, headers, b"".join(parts))
