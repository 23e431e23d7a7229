"""A corpus run next to plain loops: documents a second, and what each engine adds.

python benchmarks/corpus.py [--documents 24] [--rounds 3] [--no-processes]

- `maps`: a plain loop with eager attention and output_attentions=True, which keeps every map and says nothing
  about it: what one has to begin with.
- `maps, surveyed`: the same, and of each map the five sums that a corpus run also has: by distance, by key,
  entropy, heaviest weight, and weight on repeated tokens.
- `watch`: a plain loop of `watch`, text by text, which surveys what it saw and adds it up.
- `local`: the run itself: reads the file, packs documents, writes shards, merges.
- `processes`: the same in one process of its own, the start of it and of its model included.

Times are CPU seconds of this process and its children, so that what else runs on the machine counts less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from side_by_side import header

from regard import corpus
from regard.corpus.adding import add
from regard.corpus.reading import Reader
from regard.corpus.state import State
from regard.corpus.survey import survey
from regard.corpus.texts import Texts
from regard.corpus.windows import windows_of
from regard.models import bundled, sample_book, watch


def texts_of(folder: Path, documents: int) -> Path:
    """Pieces of the bundled book, of 60 to 250 tokens."""
    book, path = sample_book(), folder / "texts.jsonl"
    parts = [book[831 * i : 831 * i + 200 + 90 * (i % 7)] for i in range(documents)]
    path.write_text("".join(json.dumps({"text": part}) + "\n" for part in parts), encoding="utf-8")
    return path


def cpu() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def with_maps(model: Any, tokenizer: Any, texts: Path, surveyed: bool) -> None:
    """Every map of every document, dense; and if asked for, the plain sums of each."""
    model.set_attn_implementation("eager")
    for document in Texts(texts).documents(0, Texts(texts).count):
        ids = tokenizer(document.text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            maps = model(ids, output_attentions=True, use_cache=False, logits_to_keep=1).attentions
        for weights in maps if surveyed else ():
            n = weights.shape[-1]
            [weights.diagonal(-d, -2, -1).sum(-1) for d in range(n)]
            weights.sum(-2), torch.special.entr(weights).sum(-1), weights.max(-1)
            (weights * (ids[0][:, None] == ids[0])).sum(-1)
    model.set_attn_implementation("sdpa")


def with_watch(reader: Reader, tokenizer: Any, texts: Path) -> None:
    """What a run is made of, without a run: watch, survey, add."""
    model = reader.model
    state = State.empty(len(reader.heads))
    for document in Texts(texts).documents(0, Texts(texts).count):
        windows = windows_of(document, tokenizer, reader.context)
        with torch.no_grad(), watch(model, stats=()) as recording:
            ids = torch.tensor([windows.ids])
            model(ids, use_cache=False, logits_to_keep=1)
        maps = [recording.layers[index].map for index in sorted(recording.layers)]
        add(state, windows, [survey(maps, reader.role, windows.words(0))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--documents", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-processes", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = bundled()
    reader = Reader(model)
    how = "CPU seconds, medians of interleaved rounds in one process; ratios are taken within this run"
    header("A corpus run next to plain loops, bundled model, float32", how)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        texts, runs = texts_of(folder, given.documents), iter(range(1000))

        def engine(name: str) -> None:
            where = folder / f"{next(runs)}.corpus"
            corpus.run("bundled" if name == "processes" else (model, tokenizer), texts, where, engine=name)

        cases: dict[str, Callable[[], None]] = {
            "maps": lambda: with_maps(model, tokenizer, texts, False),
            "maps, surveyed": lambda: with_maps(model, tokenizer, texts, True),
            "watch": lambda: with_watch(reader, tokenizer, texts),
            "local": lambda: engine("local"),
        }
        if not given.no_processes:
            cases["processes"] = lambda: engine("processes")
        print_times(race(cases, given.rounds), given.documents)


def race(cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each case, round by round, after one that warms up."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            start = cpu()
            case()
            if number:
                times[name].append(cpu() - start)
    return times


def print_times(times: dict[str, list[float]], documents: int) -> None:
    print("| who | CPU s | documents / s | time / watch | from … to |\n| --- | ---: | ---: | ---: | ---: |")
    middle = {name: statistics.median(spent) for name, spent in times.items()}
    for name, spent in times.items():
        ratio = middle[name] / middle["watch"]
        ends = f"{min(spent):.2f} … {max(spent):.2f}"
        print(f"| {name} | {middle[name]:.2f} | {documents / middle[name]:.1f} | {ratio:.2f} | {ends} |")


if __name__ == "__main__":
    main()
