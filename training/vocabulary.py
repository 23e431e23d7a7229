"""The tokenizer: byte-level BPE of 4,096 tokens, one of them special."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from training.corpus import MARKS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["END", "SIZE", "encode_books", "finish", "learn"]

SIZE = 4096
# Begins every text the model sees and ends every book.
END = "<|endoftext|>"


def learn(texts: Iterable[str], size: int = SIZE) -> Tokenizer:
    """Learn merges from texts; every byte stays a token, so nothing is unknown."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # ByteLevel alone would split the blank line between paragraphs into two tokens.
    newlines = pre_tokenizers.Split(Regex(r"\n+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [newlines, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode_books(tokenizer: Tokenizer, books: list[str]) -> np.ndarray:
    """All books as one uint16 stream, each ended by END."""
    end = tokenizer.token_to_id(END)
    parts = []
    for start in range(0, len(books), 16):
        for encoding in tokenizer.encode_batch(books[start : start + 16], add_special_tokens=False):
            parts.append(np.array([*encoding.ids, end], dtype=np.uint16))
    return np.concatenate(parts)


def finish(tokenizer: Tokenizer) -> Tokenizer:
    """Add what users need and prepared text does not: plain marks, and END in front of every text."""
    from tokenizers import normalizers, processors

    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(a, b) for a, b in MARKS.items()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A {END} $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return tokenizer
