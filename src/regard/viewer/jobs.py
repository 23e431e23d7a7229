"""Background jobs with progress and cancellation; one heavy and one light job run at a time."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from regard.errors import RegardError

__all__ = ["ENDED", "Job", "Jobs"]

log = logging.getLogger("regard")

ENDED = ("done", "failed", "cancelled")
# The most finished jobs to keep, and the most jobs to queue.
REMEMBERED, WAITING = 64, 16

Work = Callable[["Job"], dict[str, Any]]


class Job:
    """One background job; its events go to the page that waits for it.

    A job that is `bound` to a page is cancelled when no connection reads its events any more.
    """

    def __init__(
        self,
        kind: str,
        work: Work,
        key: Any = None,
        bound: bool = False,
        worded: Callable[[str], str] = str,
        title: str = "",
    ) -> None:
        self.worded, self.title = worded, title
        self.id, self.kind, self.key, self.bound = secrets.token_hex(8), kind, key, bound
        self.state = "waiting"
        self.done, self.total = 0, 1
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        self.abandoned = False
        """Whether it was cancelled because the last page that followed its progress went away."""
        self.events: list[dict[str, Any]] = []
        self._work = work
        self._asked = self._began = time.monotonic()
        self._stop = threading.Event()
        self._listeners = 0
        self._changed = threading.Condition()

    def progress(self, done: int, total: int) -> None:
        """Report progress; raises CancelledError if the job is to end."""
        self.check()
        self.done, self.total = done, max(1, total)
        self.tell({})

    def check(self) -> None:
        """Raise CancelledError if the job is to end; call it in long work between two reports."""
        if self._stop.is_set():
            raise CancelledError

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event with more than progress to all listeners."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> bool:
        """Wait at most `seconds` until there are more than `seen` events; returns whether there are."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.events) > seen, seconds)

    def cancel(self) -> None:
        """Request cancellation; it takes effect at the next report or check."""
        self._stop.set()
        if self.state == "waiting":
            self._end("cancelled")

    @property
    def going_on(self) -> bool:
        """Whether it is queued or running, and not cancelled."""
        return self.state not in ENDED and not self._stop.is_set()

    def listen(self) -> None:
        self._listeners += 1

    def unlisten(self) -> None:
        """Remove a listener; a bound job is cancelled with its last one."""
        self._listeners -= 1
        if self.bound and self._listeners == 0 and self.going_on:
            self.abandoned = True
            self.cancel()

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data for the page."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "seconds": time.monotonic() - (self._asked if self.state == "waiting" else self._began),
            "seconds_left": self._seconds_left(),
            "result": self.result,
            "error": self.error,
            "abandoned": self.abandoned,
        }

    def run(self) -> None:
        """Do the work, and turn any exception into a failed job."""
        if self.state != "waiting":
            return
        self.state, self._began = "running", time.monotonic()
        self.tell({})
        try:
            self.progress(0, 1)
            self.result = self._work(self)
        except CancelledError:
            self._end("cancelled")
        except RegardError as error:
            self._end("failed", str(error))
        except Exception as error:
            log.exception("the job %s failed", self.kind)
            self._end("failed", f"{self.kind} failed: {type(error).__name__}: {error}.")
        else:
            self.done = self.total
            self._end("done")

    def _end(self, state: str, error: str | None = None) -> None:
        self.state, self.error = state, None if error is None else self.worded(error)
        self.tell({})

    def _seconds_left(self) -> float | None:
        if self.state in ENDED:
            return 0.0
        if self.done == 0 or self.state != "running":
            return None
        return (time.monotonic() - self._began) * (self.total - self.done) / self.done


class Jobs:
    """Jobs in two queues, each with its own thread, so that light jobs do not wait for heavy ones.

    Two heavy jobs at once would share the cores and take twice the memory. An overview takes little of
    either, and the map on the page is empty until it is done.

    >>> jobs = Jobs()
    >>> job = jobs.start("count", lambda job: {"answer": 42})
    >>> while job.state not in ENDED:
    ...     _ = job.wait(len(job.events), 1)
    >>> job.result
    {'answer': 42}
    >>> jobs.close()
    """

    def __init__(self, worded: Callable[[str], str] = str) -> None:
        self.worded = worded
        """Converts a message before a page reads it."""
        self._jobs: dict[str, Job] = {}
        self._queues: dict[bool, queue.Queue[Job | None]] = {}
        self._workers: dict[bool, threading.Thread] = {}
        self._lock = threading.Lock()

    def start(
        self,
        kind: str,
        work: Work,
        *,
        key: Any = None,
        bound: bool = False,
        title: str = "",
        light: bool = False,
    ) -> Job:
        """Queue a job; if an unfinished job has the same `key`, returns that one instead."""
        with self._lock:
            live = self.live
            for job in live:
                if key is not None and job.key == key and job.going_on:
                    return job
            if len(live) >= WAITING:
                raise RegardError(
                    f"{len(live)} jobs are waiting already. Cancel one, or wait for one to end."
                )
            job = Job(kind, work, key, bound, self.worded, title)
            self._jobs[job.id] = job
            self._forget()
            if light not in self._workers:
                waiting = self._queues[light] = queue.Queue()
                name = "regard-light-jobs" if light else "regard-jobs"
                self._workers[light] = threading.Thread(target=_run, args=(waiting,), name=name, daemon=True)
                self._workers[light].start()
        self._queues[light].put(job)
        return job

    @property
    def live(self) -> list[Job]:
        """The unfinished jobs, in the order in which they were requested."""
        return [job for job in list(self._jobs.values()) if job.state not in ENDED]

    def get(self, name: str) -> Job:
        if name not in self._jobs:
            raise KeyError(f"no job has the id {name!r}; it may have ended long ago.")
        return self._jobs[name]

    def close(self) -> None:
        """Cancel all jobs, and wait a little for the threads to notice."""
        for job in list(self._jobs.values()):
            job.cancel()
        for light, worker in self._workers.items():
            self._queues[light].put(None)
            worker.join(timeout=5)

    def _forget(self) -> None:
        ended = [job.id for job in self._jobs.values() if job.state in ENDED]
        for name in ended[: max(0, len(self._jobs) - REMEMBERED)]:
            del self._jobs[name]


def _run(waiting: queue.Queue[Job | None]) -> None:
    while (job := waiting.get()) is not None:
        job.run()
