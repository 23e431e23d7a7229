"""`Job`: the plain data that a worker needs to read shards."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from regard.corpus.plan import Plan, differences
from regard.corpus.reading import Reader
from regard.corpus.shard import ShardWorker
from regard.corpus.source import ModelSource
from regard.corpus.store import Store
from regard.corpus.texts import Texts
from regard.errors import CorpusError

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """A model by name, texts by path, and the folder of the run."""

    model: ModelSource
    texts: str
    field: str
    output: str

    def to_dict(self) -> dict[str, Any]:
        """The job as plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Job:
        """The inverse of `to_dict`."""
        return Job(ModelSource(**data["model"]), data["texts"], data["field"], data["output"])

    def worker(self) -> ShardWorker:
        """Load the model, and return a worker for the plan on disk."""
        store = Store(self.output)
        plan = Plan.read(store)
        if plan is None:
            raise CorpusError(f"{self.output} holds no corpus run. Begin one with regard corpus.")
        model, tokenizer = self.model.load()
        reader = Reader(model, plan.settings.context)
        texts = Texts(self.texts, self.field)
        own = Plan.of(model, tokenizer, reader, texts, plan.settings)
        found = differences(plan.about, own.about)
        if found:
            raise CorpusError(
                f"a worker sees something else than the run was planned with: {'; '.join(found)}. Every "
                "worker needs the same model, texts and regard."
            )
        return ShardWorker(reader, tokenizer, texts, plan, store)
