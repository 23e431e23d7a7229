"""A run in a process of its own, which a test kills: model, texts, output, and whether to resume."""

from __future__ import annotations

import sys

from regard import corpus

if __name__ == "__main__":
    model, texts, output, resume = sys.argv[1:]
    settings = corpus.Settings(shard=4, batch=100)
    corpus.run(model, texts, output, settings=settings, resume=resume == "True")
