"""Sends requests to the application in this process, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

__all__ = ["ask"]

# The address of the page's own origin: the application refuses requests from others.
ORIGIN = "http://127.0.0.1"


def ask(app: Any, path: str, method: str = "GET", body: Any = None) -> httpx.Response:
    """Send a request to an application of `create_app`, with the same checks as for a page's request.

    >>> from regard.viewer import create_app
    >>> answer = ask(create_app(), "/api/worked")
    >>> answer.status_code, answer.json()
    (200, {'names': ['cat', 'three']})
    """
    return _run(_response(app, path, method, body))


def _run(response: Coroutine[Any, Any, httpx.Response]) -> httpx.Response:
    """Wait for a response, even if an event loop is running, as in every notebook cell."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(response)
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, response).result()


async def _response(app: Any, path: str, method: str, body: Any) -> httpx.Response:
    # Starlette re-raises an exception after it has answered 500, so that a server can log it.
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    options: dict[str, Any] = {} if body is None else {"json": body}
    # Don't compress: the bytes stay in this process.
    headers = {"accept-encoding": "identity"}
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, trust_env=False) as client:
        return await client.request(method, path, headers=headers, timeout=None, **options)
