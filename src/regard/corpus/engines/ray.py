"""Ray: actors on one machine or many, each with the model loaded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from regard.corpus.job import Job
from regard.errors import CorpusError, RegardError

__all__ = ["STARTS", "on_ray"]

# After this many deaths in a row, without a finished shard in between, the engine gives up.
STARTS = 16


def on_ray(
    job: Job, shards: Sequence[int], tell: Callable[[int, int], None], workers: int, gpus: float = 0.0
) -> None:
    """Read shards with Ray actors, one shard per actor at a time.

    They run in the Ray cluster that this program has joined, or in a new local one. An actor that dies is
    replaced, and any free actor reads its shard again.
    """
    ray = _ray()
    own = not ray.is_initialized()
    if own:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        _drive(ray, job, list(shards), tell, workers, gpus)
    finally:
        if own:
            ray.shutdown()


def _drive(
    ray: Any, job: Job, shards: list[int], tell: Callable[[int, int], None], workers: int, gpus: float
) -> None:
    kind = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0, max_task_retries=0)(_Actor)
    waiting = shards[::-1]
    reading: dict[Any, tuple[Any, int]] = {}
    deaths = 0

    def give(actor: Any) -> None:
        if waiting:
            shard = waiting.pop()
            reading[actor.read.remote(shard)] = actor, shard

    for _ in range(min(workers, len(shards))):
        give(kind.remote(job.to_dict()))
    while reading:
        (done,), _ = ray.wait(list(reading), num_returns=1)
        actor, shard = reading.pop(done)
        try:
            documents = ray.get(done)
        except (ray.exceptions.RayActorError, ray.exceptions.OutOfMemoryError) as error:
            deaths += 1
            waiting.append(shard)
            if deaths >= STARTS:
                raise CorpusError(
                    f"Ray actors died {deaths} times in a row ({str(error).splitlines()[0]}). Shards that "
                    "were read stay: go on with --resume, with fewer workers or a smaller model."
                ) from error
            give(kind.remote(job.to_dict()))
            continue
        except ray.exceptions.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, RegardError) else error
            raise CorpusError(str(cause)) from error
        deaths = 0
        tell(shard, documents)
        give(actor)


class _Actor:
    """An actor that loads the model for its first shard, and keeps it."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.worker = job, None

    def read(self, shard: int) -> int:
        if self.worker is None:
            self.worker = Job.from_dict(self.job).worker()
        state = self.worker.work(shard)
        return state.documents + len(state.failed)

    def pid(self) -> int:
        """The process it runs in."""
        import os

        return os.getpid()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise CorpusError(
            f"engine 'ray' needs Ray, which cannot be imported here ({error}). Install it with: pip install "
            "\"regard[ray]\", or use engine 'processes'."
        ) from error
    return ray
