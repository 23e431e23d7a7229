"""`run` and `merge`: an atlas of a whole corpus."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.corpus.atlas import CorpusAtlas
from regard.corpus.engines import in_processes, in_this_process, on_ray
from regard.corpus.job import Job
from regard.corpus.merging import ATLAS, merged, missing, write_atlas
from regard.corpus.plan import Plan, Settings, agreed
from regard.corpus.reading import Reader
from regard.corpus.shard import ShardWorker
from regard.corpus.source import ModelSource
from regard.corpus.store import Store
from regard.corpus.texts import Texts
from regard.errors import CorpusError

__all__ = ["ENGINES", "merge", "run"]

ENGINES = ("local", "processes", "ray")


def run(
    model: Any,
    texts: str | Path,
    output: str | Path | None = None,
    *,
    engine: str = "local",
    workers: int = 1,
    gpus: float = 0.0,
    settings: Settings | None = None,
    resume: bool = False,
    part: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CorpusAtlas | None:
    """Survey every head of a model over all texts of a corpus.

    `model` is a name, as for `load_model` (or "bundled"), or a `ModelSource`; the local engine also takes a
    pair of a model and its tokenizer. `texts` is a folder of text files, .jsonl or .parquet files, or a
    folder that `datasets` saved. `output` is a folder, on any file system that fsspec knows; a temporary
    one if None.

    The corpus is cut into shards, and the state of each finished shard is written. The result is the same,
    byte for byte, with any engine and any number of `workers`, and after a crash; `resume=True` continues a
    run that stopped. `gpus` is the share of a GPU per Ray actor. `part="3/64"` reads the third of 64 parts
    and returns None; when all parts are done, `merge` makes the atlas.

    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("one", "two"):
    ...     written = (folder / f"{name}.txt").write_text(f"Once upon a time there was {name} hen.")
    >>> run("bundled", folder)
    CorpusAtlas(SmolLM3ForCausalLM, 54 heads, 2 documents, 24 tokens)
    """
    asked = settings or Settings()
    _check(engine, workers, model)
    store = Store(tempfile.mkdtemp(suffix=".corpus") if output is None else output)
    source = _source(model)
    found = Texts(texts, asked.field)
    loaded, tokenizer = source.load() if source is not None else model
    reader = Reader(loaded, asked.context)
    if asked.importance:
        reader.check_importance()
    plan = Plan.of(loaded, tokenizer, reader, found, asked)
    mine = _part(part, plan.shards)  # refused before anything is written
    plan = agreed(store, plan, resume=resume, part=part is not None)
    shards = [shard for shard in missing(store, plan) if shard in mine]
    tell = _teller(plan, shards, part, progress)
    if engine == "local":
        in_this_process(ShardWorker(reader, tokenizer, found, plan, store), shards, tell)
    elif source is not None and shards:
        del loaded, reader
        job = Job(source, str(Path(texts).absolute()), asked.field, _absolute(store))
        if engine == "ray":
            on_ray(job, shards, tell, workers, gpus)
        else:
            in_processes(job, shards, tell, workers)
    return None if part is not None else merge(store.where)


def merge(output: str | Path) -> CorpusAtlas:
    """Join the shards of a run, all of which must be finished, into its atlas."""
    store = Store(output)
    plan = Plan.read(store)
    if plan is None:
        raise CorpusError(f"{output} holds no corpus run. Begin one with regard corpus MODEL TEXTS -o NAME.")
    if store.read_json(f"{ATLAS}.json") is None:
        state = merged(store, plan)
        store.tidy()
        write_atlas(store, plan, state)
    return CorpusAtlas.open(output)


def _check(engine: str, workers: int, model: Any) -> None:
    if engine not in ENGINES:
        raise CorpusError(f"there is no engine {engine!r}; engines are: {', '.join(ENGINES)}.")
    if workers < 1:
        raise CorpusError(f"workers is {workers}; wanted 1 or more.")
    if engine == "local" and workers > 1:
        raise CorpusError(
            f"engine 'local' is this one process, and workers is {workers}. Use engine 'processes' or 'ray'."
        )
    if engine != "local" and _source(model) is None:
        raise CorpusError(
            f"engine {engine!r} loads the model once in every worker, and got a model that is loaded "
            "already. Give its name or its folder, or use engine 'local'."
        )


def _source(model: Any) -> ModelSource | None:
    if isinstance(model, ModelSource):
        return model
    if isinstance(model, str | Path):
        return ModelSource(str(model))
    if isinstance(model, tuple) and len(model) == 2:
        return None
    raise CorpusError(
        f"model is a {type(model).__name__}; wanted a name, a folder, or a model and its tokenizer."
    )


def _part(part: str | None, shards: int) -> range:
    """The shards of one part of an array job: every n-th, so that all parts take about the same time."""
    if part is None:
        return range(shards)
    match = re.fullmatch(r"(\d+)/(\d+)", part)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise CorpusError(f"part is {part!r}; wanted one such as 3/64, from 1/64 to 64/64.")
    return range(int(match[1]) - 1, shards, int(match[2]))


def _teller(
    plan: Plan, shards: list[int], part: str | None, progress: Callable[[int, int], None] | None
) -> Callable[[int, int], None]:
    """Convert progress per shard to documents done and total documents."""
    mine = _part(part, plan.shards)
    total = sum(len(plan.range_of(shard)) for shard in mine)
    before = total - sum(len(plan.range_of(shard)) for shard in shards)
    known: dict[int, int] = {}

    def tell(shard: int, documents: int) -> None:
        known[shard] = documents
        if progress is not None:
            progress(before + sum(known.values()), total)

    return tell


def _absolute(store: Store) -> str:
    """The store with an absolute path, because workers may start in another folder."""
    return store.root if store.local else store.where
