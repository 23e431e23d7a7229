"""Turn the corpus into tokens, learn the tokenizer, and count the n-gram baselines.

    python -m training.prepare CORPUS_FOLDER [--out .train]

The folder holds .txt.xz files of books, three newlines apart. Writes train.bin.xz, validation.bin.xz,
long.bin.xz (whole books, for loss by position), facts.json.xz (what rows of text hide and ask for),
tokenizer.json and baselines.json. Needs the tokenizers library; the training itself does not. `--tokenizer`
keeps one that is there instead of learning it; baselines of high order take minutes, `--orders 1,2` seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from training.corpus import hold_out, read_books, set_aside, without_copies
from training.facts import encode_facts, make_facts, save_facts
from training.ngrams import NGramModel
from training.tokens import save_tokens
from training.vocabulary import SIZE, encode_books, finish, learn

if TYPE_CHECKING:
    from tokenizers import Tokenizer

HELD_OUT = 0.01
# Merges learned from a fifth of the text are those learned from all of it, but for the rarest.
SAMPLE = 5
# Books that fill the context of 65,536 tokens, and how many of them are held out to measure loss by position.
LONG, LONG_CHARACTERS = 8, 250_000
FACTS = 30_000
ORDERS = {1: "unigram", 2: "bigram", 3: "trigram", 5: "5-gram"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="folder of .txt.xz files")
    parser.add_argument("--out", type=Path, default=Path(".train"))
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to keep")
    parser.add_argument("--unread", type=Path, help="a book (.txt.xz) of which no copy is trained on")
    parser.add_argument("--orders", default="1,2,3,5", help="orders of the n-gram baselines")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = sorted(arguments.corpus.glob("*.txt.xz"))
    if not files:
        raise SystemExit(f"{arguments.corpus} holds no .txt.xz file.")
    orders = tuple(int(order) for order in arguments.orders.split(","))
    prepare(files, arguments.out, tokenizer=arguments.tokenizer, unread=arguments.unread, orders=orders)


def prepare(
    files: list[Path],
    out: Path,
    held_out: float = HELD_OUT,
    *,
    long: tuple[int, int] = (LONG, LONG_CHARACTERS),
    tokenizer: Path | None = None,
    unread: Path | None = None,
    orders: tuple[int, ...] = tuple(ORDERS),
    facts: int = FACTS,
) -> dict:
    """Write everything `training.train` reads; returns the statistics it also writes."""
    train_books, validation_books = hold_out([read_books(path) for path in files], held_out)
    if unread is not None:
        train_books = without_copies(train_books, lzma.decompress(unread.read_bytes()).decode())
    train_books, long_books = set_aside(train_books, *long)
    say(f"{len(train_books)} books to train on, {len(validation_books)} and {len(long_books)} held out:")
    for book in validation_books + long_books:
        say(f"  {len(book):7,} characters  {' '.join(book[:70].split())}")
    encoder = _learned(train_books) if tokenizer is None else _kept(tokenizer)
    train, validation, long_stream = (
        encode_books(encoder, books) for books in (train_books, validation_books, long_books)
    )
    save_facts(out / "facts.json.xz", encode_facts(encoder, make_facts(facts)))
    paragraph_end = encoder.encode("\n\n", add_special_tokens=False).ids[0]
    if tokenizer is None:
        finish(encoder).save(str(out / "tokenizer.json"), pretty=False)
    else:
        shutil.copyfile(tokenizer, out / "tokenizer.json")
    streams = {"train": train, "validation": validation, "long": long_stream}
    size = sum(save_tokens(out / f"{name}.bin.xz", stream) for name, stream in streams.items())
    statistics = {
        "vocabulary": encoder.get_vocab_size(),
        "paragraph_end": paragraph_end,
        "sentence_ends": _sentence_ends(encoder),
        "books": {"train": len(train_books), "validation": len(validation_books), "long": len(long_books)},
        "characters": {"train": sum(map(len, train_books)), "validation": sum(map(len, validation_books))},
        "tokens": {name: len(stream) for name, stream in streams.items()},
        "characters_per_token": round(sum(map(len, validation_books)) / len(validation), 3),
        "file_bytes": size,
        "train_sha256": hashlib.sha256(train.tobytes()).hexdigest(),
    }
    say(json.dumps(statistics, indent=1))
    statistics["nats_per_token"] = baselines(train, validation, orders)
    (out / "baselines.json").write_text(json.dumps(statistics, indent=1) + "\n")
    return statistics


def _learned(books: list[str]) -> Tokenizer:
    paragraphs = [p for book in books for p in book.split("\n\n")]
    return learn(p + "\n\n" for p in paragraphs[::SAMPLE])


def _kept(path: Path) -> Tokenizer:
    """A tokenizer as it was before `finish`: prepared text needs no plain marks and no END in front."""
    import tokenizers

    kept = json.loads(path.read_text(encoding="utf-8")) | {"normalizer": None, "post_processor": None}
    return tokenizers.Tokenizer.from_str(json.dumps(kept))


def _sentence_ends(tokenizer: Tokenizer) -> list[int]:
    """The tokens with which a sentence ends, the full stop first."""
    ends = (".", "!", "?", '."', '!"', '?"')
    return [i for mark in ends if (i := tokenizer.token_to_id(mark)) is not None]


def baselines(train: np.ndarray, validation: np.ndarray, orders: tuple[int, ...]) -> dict[str, float]:
    """Validation losses of n-gram models of the training tokens."""
    losses = {}
    for order in orders:
        name = ORDERS[order]
        losses[name] = round(NGramModel(train, order, SIZE).loss(validation), 4)
        say(f"{name}: {losses[name]} nats per token")
    return losses


def say(line: str, start: float = time.monotonic()) -> None:
    print(f"[{time.monotonic() - start:6.1f} s] {line}", flush=True)


if __name__ == "__main__":
    main()
