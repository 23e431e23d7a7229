"""Texts for corpus tests, and the bytes of what they write."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

__all__ = ["WORDS", "digests", "text_of"]

WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "and", "then", "it", "saw", "hen", "red", "hill"]
WORDS += [",", "who", "went", "up", "again", "to", "see"]


def text_of(number: int, words: int) -> str:
    """A text that differs from others, in which words come back."""
    draw = torch.Generator().manual_seed(number)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (words,), generator=draw).tolist())


def digests(folder: Path) -> dict[str, str]:
    """Every file below a folder, by name, with a digest of its bytes."""
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
