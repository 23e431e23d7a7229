"""`Plan`: everything that determines the result of a corpus run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from regard._version import __version__
from regard.corpus.source import tokenizer_digest
from regard.corpus.state import BINS, KIND_NAMES, MEASURES, TOPS
from regard.corpus.store import Store
from regard.errors import CorpusError
from regard.models.identity import ModelIdentity

__all__ = ["PLAN", "Plan", "Settings", "agreed", "differences"]

FORMAT = 2
PLAN = "plan.json"


@dataclass(frozen=True)
class Settings:
    """The settings of a run. Each affects the result, at least its last bits, so each is part of the plan.

    A shard is `shard` consecutive documents; a batch packs documents of up to `batch` tokens in total.
    `context` is the longest window, by default the model's. `threads` is the number of threads per worker.
    `importance=10` cuts every head in every tenth document, which takes one run of the model per head.
    """

    field: str = "text"
    shard: int = 64
    batch: int = 4096
    context: int | None = None
    threads: int = 1
    importance: int = 0

    def __post_init__(self) -> None:
        for name in ("shard", "batch", "threads"):
            if getattr(self, name) < 1:
                raise CorpusError(f"{name} is {getattr(self, name)}; wanted 1 or more.")
        if self.importance < 0:
            raise CorpusError(
                f"importance is {self.importance}; wanted 10 for every tenth document, or 0 for none."
            )


@dataclass(frozen=True)
class Plan:
    """The shards of a corpus, and the data by which a later run recognises the same run."""

    about: dict[str, Any]

    @classmethod
    def of(cls, model: Any, tokenizer: Any, reader: Any, texts: Any, settings: Settings) -> Plan:
        identity = ModelIdentity.of(model)
        device = model.device.type
        return cls(
            {
                "format": FORMAT,
                "regard": __version__,
                "model": {"kind": identity.kind, "fingerprint": identity.fingerprint, "device": device},
                "tokenizer": tokenizer_digest(tokenizer),
                "texts": texts.marks,
                "documents": texts.count,
                "settings": asdict(settings) | {"context": reader.context},
                "statistics": {"kinds": list(KIND_NAMES), "measures": list(MEASURES), "tops": TOPS, **BINS},
                "stack": reader.role,
                "layers": [list(layer) for layer in reader.layers],
                "packed": reader.packs,
                "not_packed_because": reader.refusal,
            }
        )

    @property
    def settings(self) -> Settings:
        return Settings(**self.about["settings"])

    @property
    def shards(self) -> int:
        """The number of shards, which depends only on the documents and settings."""
        return -(-self.about["documents"] // self.settings.shard)

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Every head by stack, layer and number, in the order of all states."""
        stack = self.about["stack"]
        return [(stack, layer, head) for layer, heads in self.about["layers"] for head in range(heads)]

    def range_of(self, shard: int) -> range:
        """The documents of a shard."""
        size = self.settings.shard
        return range(shard * size, min((shard + 1) * size, self.about["documents"]))

    @staticmethod
    def read(store: Store) -> Plan | None:
        """The plan of a run that was begun; None if there is none."""
        about = store.read_json(PLAN)
        if about is None:
            return None
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise CorpusError(
                f"{store.where} has the plan of another format; this regard ({__version__}) reads format "
                f"{FORMAT}. Read it with the regard that wrote it."
            )
        return Plan(about)


def agreed(store: Store, plan: Plan, *, resume: bool, part: bool = False) -> Plan:
    """Begin a run, or resume one with the same plan; raises CorpusError with the differences otherwise.

    Every part of an array job begins the run: the first writes the plan, and all plans are equal.
    """
    known = Plan.read(store)
    if known is None:
        others = store.names()
        if others:
            raise CorpusError(
                f"{store.where} holds something other than a corpus run ({others[0]}); nothing in it is "
                "overwritten. Choose another name."
            )
        if resume:
            raise CorpusError(f"{store.where} holds no corpus run to resume. Leave out resume.")
        store.write_json(PLAN, plan.about)
        return plan
    if not resume and not part:
        raise CorpusError(
            f"{store.where} holds a corpus run already. Go on with it with resume=True (regard corpus "
            "--resume), or choose another name."
        )
    found = differences(known.about, plan.about)
    if found:
        raise CorpusError(
            f"{store.where} was begun with something else and cannot be resumed: {'; '.join(found)}. Give "
            "what it was begun with, or choose another name."
        )
    return known


def differences(old: Any, new: Any, name: str = "") -> list[str]:
    """The differences of two plans as text."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in sorted({*old, *new})
            for line in differences(old.get(key), new.get(key), f"{name} {key}".strip())
        ]
    if old == new:
        return []
    return [f"{name} was {_short(old)} and is {_short(new)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
