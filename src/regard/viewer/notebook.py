"""The widget: the page's Map and Text in a notebook cell, over the notebook's own message channel.

The page sends requests `{id, path, method, body}` with the server's paths. The response is `{id, status,
result}`; for an array, `result` is `{rows, cols}` and its float32 numbers are sent as a buffer. `{cancel:
id}` cancels a request. Requests go to the same application that a server runs, in this process: no port is
opened.
"""

from __future__ import annotations

import asyncio
import secrets
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import anywidget
import httpx
import traitlets as t

from regard.models import Recording
from regard.viewer.app import create_app
from regard.viewer.asking import ask
from regard.viewer.picture import draw, still_output
from regard.viewer.place import PLACE, WORDS, place_of
from regard.viewer.session import Session
from regard.viewer.settings import STATIC, Settings
from regard.viewer.tiles import DIRECT

__all__ = ["Widget"]

# Worker threads. A tile keeps one core busy; more threads would compete with each other and the user's cells.
WORKERS = 2


class Widget(anywidget.AnyWidget):
    """Map and Text of one recording. The traits hold the current view; setting them changes it."""

    _esm = STATIC / "widget.js"
    _css = STATIC / "widget.css"

    views = t.List(t.Unicode(), ["map", "text"]).tag(sync=True)
    height = t.Int(640).tag(sync=True)
    view = t.Enum(WORDS["view"], "map").tag(sync=True)
    role = t.Unicode().tag(sync=True)
    layer = t.Int(0).tag(sync=True)
    head = t.Int(0).tag(sync=True)
    query = t.Int(None, allow_none=True).tag(sync=True)
    key = t.Int(None, allow_none=True).tag(sync=True)
    x = t.Float(None, allow_none=True).tag(sync=True)
    y = t.Float(None, allow_none=True).tag(sync=True)
    z = t.Float(None, allow_none=True).tag(sync=True)
    how = t.Enum(WORDS["how"], "max").tag(sync=True)
    scale = t.Enum(WORDS["scale"], "log").tag(sync=True)
    palette = t.Enum(WORDS["palette"], "viridis").tag(sync=True)
    still = t.Unicode().tag(sync=True)
    """The name of the still picture; the page hides it by that name."""

    def __init__(self, recording: Recording, **view: Any) -> None:
        self.recording = recording
        session = Session(Settings(recordings=()))
        session.library.add(recording, "recording" if recording.path is None else recording.path.name)
        self._app = create_app(session=session)
        self._workers = ThreadPoolExecutor(WORKERS, "regard-widget")
        self._asked: dict[str, Future[httpx.Response]] = {}
        super().__init__(**view, still=secrets.token_hex(8))
        self._end = weakref.finalize(self, _finish, session, self._workers)
        self.on_msg(self._heard)

    def __repr__(self) -> str:
        where = f"layer {self.layer}, head {self.head}"
        return f"A widget at {where}, drawn where notebooks run widgets, as JupyterLab, VS Code and Colab do."

    def close(self) -> None:
        """Close the widget and free its resources."""
        super().close()
        self._end()

    @t.validate(*PLACE)
    def _recorded(self, proposal: Any) -> Any:
        """Reject a layer or head that was not recorded, before the page shows it."""
        wanted = {name: getattr(self, name) for name in PLACE}
        place_of(self.recording, **{**wanted, proposal["trait"].name: proposal["value"]})
        return proposal["value"]

    def _ipython_display_(self, **options: Any) -> None:
        """Display the widget, and below it a picture, which the running widget hides.

        Tools such as nbconvert keep only the richest representation of each output, so a picture that is a
        second representation of the widget would never be shown. Therefore it is a separate output.
        """
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        found = super()._repr_mimebundle_(**options)
        if found is not None:
            display(found[0], metadata=found[1], raw=True)
        if self._small and hasattr(get_ipython(), "kernel"):
            display(still_output(self._drawn(), self.still), raw=True)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and a picture for programs that choose a representation of an output."""
        found = super()._repr_mimebundle_(**options)
        if found is None:
            return None
        data, about = found
        return ({**data, "image/png": self._drawn()} if self._small else data), about

    @property
    def _small(self) -> bool:
        """Whether a picture can be drawn fast enough."""
        shape = self.recording.stack(self.role)[self.layer].map.shape
        return shape[2] * shape[3] <= DIRECT

    def _drawn(self) -> str:
        return draw(self.recording, self.role, self.layer, self.head)

    def _heard(self, _: Any, content: dict[str, Any], __: Any) -> None:
        if "cancel" in content:
            waiting = self._asked.pop(str(content["cancel"]), None)
            if waiting is not None:
                waiting.cancel()
            return
        number = str(content.get("id"))
        question = str(content.get("path")), str(content.get("method", "GET")), content.get("body")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without an event loop there is no kernel to block: answer at once.
            self._reply(number, ask(self._app, *question))
            return
        # Compute in a worker thread, so that cells can run meanwhile. Send the response from the thread that
        # received the request, because the notebook's channel belongs to that thread.
        future = self._asked[number] = self._workers.submit(ask, self._app, *question)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._done, number, done))

    def _done(self, number: str, future: Future[httpx.Response]) -> None:
        if self._asked.pop(number, None) is None or future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._reply(number, future.result())
        else:
            said = f"the kernel failed here: {type(error).__name__}: {error}"
            self.send({"id": number, "status": 500, "result": {"error": said}})

    def _reply(self, number: str, answer: httpx.Response) -> None:
        buffers: list[bytes] = []
        if answer.headers.get("content-type", "").startswith("application/json"):
            result = answer.json()
        elif answer.is_error:
            result = {"error": answer.text or "the application failed without an answer"}
        else:
            sides = (answer.headers.get(name) for name in ("x-rows", "x-cols"))
            rows, cols = (0 if side is None else int(side) for side in sides)
            result, buffers = {"rows": rows, "cols": cols}, [answer.content]
        self.send({"id": number, "status": answer.status_code, "result": result}, buffers)


def _finish(session: Session, workers: ThreadPoolExecutor) -> None:
    workers.shutdown(wait=False, cancel_futures=True)
    session.close()
