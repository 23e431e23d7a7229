"""Turn the corpus into tokens, learn the tokenizer, and count the n-gram baselines.

    python -m training.prepare CORPUS_FOLDER [--out .train]

The folder holds .txt.xz files of books, three newlines apart. Writes train.bin.xz, validation.bin.xz,
tokenizer.json and baselines.json. Needs the tokenizers library; the training itself does not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

import numpy as np

from training.corpus import hold_out, read_books
from training.ngrams import NGramModel
from training.tokens import save_tokens
from training.vocabulary import SIZE, encode_books, finish, learn

HELD_OUT = 0.01
# Merges learned from a fifth of the text are those learned from all of it, but for the rarest.
SAMPLE = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="folder of .txt.xz files")
    parser.add_argument("--out", type=Path, default=Path(".train"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    files = sorted(arguments.corpus.glob("*.txt.xz"))
    if not files:
        raise SystemExit(f"{arguments.corpus} holds no .txt.xz file.")
    prepare(files, arguments.out)


def prepare(files: list[Path], out: Path, held_out: float = HELD_OUT) -> dict:
    """Write everything `training.train` reads; returns the statistics it also writes."""
    train_books, validation_books = hold_out([read_books(path) for path in files], held_out)
    say(f"{len(train_books)} books to train on, {len(validation_books)} held out:")
    for book in validation_books:
        say(f"  {len(book):7,} characters  {' '.join(book[:70].split())}")
    paragraphs = [p for book in train_books for p in book.split("\n\n")]
    tokenizer = learn(p + "\n\n" for p in paragraphs[::SAMPLE])
    train, validation = encode_books(tokenizer, train_books), encode_books(tokenizer, validation_books)
    finish(tokenizer).save(str(out / "tokenizer.json"), pretty=False)
    size = save_tokens(out / "train.bin.xz", train) + save_tokens(out / "validation.bin.xz", validation)
    statistics = {
        "vocabulary": tokenizer.get_vocab_size(),
        "paragraph_end": tokenizer.encode("\n\n", add_special_tokens=False).ids[0],
        "books": {"train": len(train_books), "validation": len(validation_books)},
        "characters": {"train": sum(map(len, train_books)), "validation": sum(map(len, validation_books))},
        "tokens": {"train": len(train), "validation": len(validation)},
        "characters_per_token": round(sum(map(len, validation_books)) / len(validation), 3),
        "file_bytes": size,
        "train_sha256": hashlib.sha256(train.tobytes()).hexdigest(),
    }
    say(json.dumps(statistics, indent=1))
    statistics["nats_per_token"] = baselines(train, validation)
    (out / "baselines.json").write_text(json.dumps(statistics, indent=1) + "\n")
    return statistics


def baselines(train: np.ndarray, validation: np.ndarray) -> dict[str, float]:
    """Validation losses of n-gram models of the training tokens."""
    losses = {}
    for name, order in (("unigram", 1), ("bigram", 2), ("trigram", 3), ("5-gram", 5)):
        losses[name] = round(NGramModel(train, order, SIZE).loss(validation), 4)
        say(f"{name}: {losses[name]} nats per token")
    return losses


def say(line: str, start: float = time.monotonic()) -> None:
    print(f"[{time.monotonic() - start:6.1f} s] {line}", flush=True)


if __name__ == "__main__":
    main()
