"""Runs the viewer's server: chooses a port, prints the address, opens a browser, shuts down."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from regard.errors import RegardError
from regard.viewer.settings import Settings
from regard.viewer.starting import MAKING, Starting

__all__ = ["address_for_others", "address_of", "listen", "serve"]

PORT = 7270
BACKLOG = 2048


def serve(
    settings: Settings | None = None,
    session: object = None,
    *,
    open_browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the viewer until Ctrl-C.

    It listens on loopback. If `settings.host` is another address, it generates a token, which the printed
    address contains. If the port is taken, a free one is used. `session` is a session, or a function that
    makes one; by default it shows the recordings of `settings`. Until it is there, the server answers with a
    progress page.
    """
    import uvicorn

    settings = settings or Settings()
    if not settings.local and settings.token is None:
        settings = replace(settings, token=secrets.token_urlsafe(24))
    opened = listen(settings, say)
    settings = replace(settings, port=opened.getsockname()[1])
    starting = Starting(patient=not callable(session))
    config = uvicorn.Config(starting, log_level="warning", timeout_graceful_shutdown=1, server_header=False)
    server = uvicorn.Server(config)
    made = _Making(settings, session, starting, server)
    address = address_of(settings)
    told = (server, address, address_for_others(settings), open_browser, say)
    if session is None or callable(session):
        made.start()
    else:
        made.run()
    threading.Thread(target=_announce, args=told, daemon=True).start()
    try:
        server.run(sockets=[opened])
    except KeyboardInterrupt:
        pass
    finally:
        made.close()
        opened.close()
    if made.error is not None:
        raise made.error


class _Making(threading.Thread):
    """Creates the application in a thread while the server runs, then replaces the waiting page with it."""

    def __init__(self, settings: Settings, session: object, starting: Starting, server: Any) -> None:
        super().__init__(name=MAKING, daemon=True)
        self.settings, self.session, self.starting, self.server = settings, session, starting, server
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            import torch  # noqa: F401  # takes seconds, so the page names it

            self.starting.tell("Loading the viewer")
            from regard.viewer.app import create_app
            from regard.viewer.session import Session

            if callable(self.session):
                self.session = self.session(self.starting.tell)
            elif not isinstance(self.session, Session):
                self.session = Session(self.settings)
            self.starting.app = create_app(self.settings, cast(Session, self.session))
        except Exception as error:
            self.error = error
            told = str(error) if isinstance(error, RegardError) else f"{type(error).__name__}: {error}"
            self.starting.fail(self.settings.without_folders(told))
            self.server.should_exit = True

    def close(self) -> None:
        close = getattr(self.session, "close", None)
        if close is not None:
            close()


def listen(settings: Settings, say: Callable[[str], None] = print) -> socket.socket:
    """Open a socket on the requested port, or on a free one if that is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    for port in (settings.port or PORT, 0):
        opened = socket.socket(family, socket.SOCK_STREAM)
        if os.name != "nt":
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((settings.host, port))
            # Listen now: two servers that start at the same time can both bind a port, but only one can
            # listen.
            opened.listen(BACKLOG)
            return opened
        except OSError as error:
            opened.close()
            if not port:
                raise RegardError(f"the server cannot listen on {settings.host}: {error}.") from error
            if settings.port:
                say(f"Port {port} is taken; using a free one.")
    raise RegardError(f"the server found no free port on {settings.host}.")


def address_of(settings: Settings) -> str:
    """The URL to open in a browser.

    >>> address_of(Settings(host="::1", port=80)), address_of(Settings(host="0.0.0.0", port=81, token="x"))
    ('http://[::1]:80/', 'http://127.0.0.1:81/?token=x')
    """
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.port}/" + (f"?token={settings.token}" if settings.token else "")


def address_for_others(settings: Settings) -> str | None:
    """The address under which other machines reach a server that listens on all interfaces."""
    family = {"0.0.0.0": socket.AF_INET, "::": socket.AF_INET6}.get(settings.host)
    if family is None:
        return None
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only selects the interface towards other
            # machines.
            probe.connect(("10.255.255.255", 1) if family == socket.AF_INET else ("2001:db8::1", 1))
            own = probe.getsockname()[0]
        except OSError:
            own = socket.gethostname()
    return address_of(replace(settings, host=own))


def _announce(
    server: object, address: str, others: str | None, open_browser: bool, say: Callable[[str], None]
) -> None:
    """Print the viewer's address once the server answers."""
    while not getattr(server, "started", False):
        if getattr(server, "should_exit", False):
            return
        time.sleep(0.01)
    say(f"regard is at {address}  (Ctrl-C ends it)")
    if others is not None:
        say(f"Other machines reach it at {others}")
    if open_browser and _has_screen():
        webbrowser.open(address)


def _has_screen() -> bool:
    """Whether there is a graphical screen; a text browser would take over the terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
