"""The application: routes, errors and the page, behind the access control."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from regard._version import __version__
from regard.errors import MapError, RecordingError, RegardError
from regard.viewer import routes
from regard.viewer.security import Gate
from regard.viewer.session import Session
from regard.viewer.settings import Settings

__all__ = ["create_app"]

log = logging.getLogger("regard")

# Threads that compute answers. More threads would wait for the cores, each holding a tile in memory.
THREADS = 8
MISSING = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>regard</title>
<body style="font: 16px/1.5 system-ui; max-width: 40em; margin: 4em auto; padding: 0 1em">
<h1>The page is not built</h1>
<p>The server runs; its interface is described at <a href="/api/openapi.json">/api/openapi.json</a>.
But this copy of regard lacks the files of the page. In a checkout, run <code>make frontend</code> and start
<code>regard view</code> again; elsewhere, reinstall regard.</p></body></html>
"""


def create_app(settings: Settings | None = None, session: Session | None = None) -> FastAPI:
    """The viewer's server as an ASGI application; without a session it creates one.

    >>> from fastapi.testclient import TestClient
    >>> client = TestClient(create_app(Settings()), base_url="http://127.0.0.1")
    >>> client.get("/api/worked").json()
    {'names': ['cat', 'three']}
    """
    settings = (Settings() if session is None else session.settings) if settings is None else settings
    kept = Session(settings) if session is None else session

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        kept.close()

    app = FastAPI(
        title="regard",
        version=__version__,
        description="The attention of a recorded model: overviews, exact tiles, cells, steps, cuts.",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.session = kept
    for router in (
        routes.recordings,
        routes.maps,
        routes.findings,
        routes.comparing,
        routes.work,
        routes.storing,
        routes.checking,
    ):
        app.include_router(router)
    _answer_errors(app, settings)
    _serve_page(app, settings)
    app.add_middleware(Gate, settings=settings)  # pyright: ignore[reportArgumentType]
    return app


def _answer_errors(app: FastAPI, settings: Settings) -> None:
    """Turn any exception into a response with a one-sentence error; the server keeps running."""

    def sentence(status: int, text: str) -> JSONResponse:
        return JSONResponse({"error": settings.without_folders(text)}, status)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        said: Any = error.detail
        body = said if isinstance(said, dict) else {"error": settings.without_folders(str(said))}
        return JSONResponse(body, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> Response:
        return sentence(422, _described(error))

    @app.exception_handler(RegardError)
    async def impossible(request: Request, error: RegardError) -> Response:
        gone = isinstance(error, RecordingError)
        status = 410 if gone else 404 if isinstance(error, MapError) else 400
        return sentence(status, str(error))

    @app.exception_handler(OSError)
    async def unreadable(request: Request, error: OSError) -> Response:
        return sentence(410, f"a file cannot be read: {error}. Was the recording moved or removed?")

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> Response:
        log.error("a request failed: %s", request.url.path, exc_info=error)
        return sentence(500, f"the server failed here: {type(error).__name__}: {error}. It goes on running.")


def _described(error: RequestValidationError) -> str:
    """The first validation error as a sentence."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "path", "body"))
    return f"{where or 'the request'}: {first['msg']}."


def _serve_page(app: FastAPI, settings: Settings) -> None:
    index = settings.static / "index.html"

    @app.get("/", include_in_schema=False)
    def page() -> Response:
        if not index.is_file():
            return HTMLResponse(MISSING, 503)
        return FileResponse(index, headers={"Cache-Control": "no-cache"})

    if settings.static.is_dir():
        app.mount("/", StaticFiles(directory=settings.static), name="static")
