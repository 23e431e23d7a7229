"""A run in a process of its own, which a test kills."""

from __future__ import annotations

from pathlib import Path

from regard import corpus


def main(model: Path, texts: Path, output: Path, resume: bool) -> None:
    corpus.run(model, texts, output, settings=corpus.Settings(shard=4, batch=100), resume=resume)
