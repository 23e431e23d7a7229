"""The viewer's server in a thread of the test: streams that break off are real, and its jobs at hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from regard.viewer import create_app
from regard.viewer.session import Session

__all__ = ["served"]


@contextmanager
def served(session: Session) -> Iterator[str]:
    """The address at which the session is served until the end of the block."""
    import uvicorn

    config = uvicorn.Config(
        create_app(session=session), port=0, log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        session.jobs.close()
        server.should_exit = True
        thread.join()
