"""docs/tour.md lists the files that a call enters; here the calls are traced."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import torch

import regard
from engine.folded import where_kernels_are
from regard import Causal, ColumnMass, Entropy

PACKAGE = Path(regard.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "tour.md"


def entered(call) -> set[str]:
    """The files of the package whose functions a call enters when it is made once more."""
    call()
    found = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            found.add(str(path.relative_to(PACKAGE)))

    # What is collected from earlier tests must not run in between.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def listed(title: str) -> list[str]:
    """The files under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## `{title}`")[1].split("\n## ")[0]
    return re.findall(r"^- \**`([\w/.]+)`", section, flags=re.MULTILINE)


def qkv():
    return torch.randn(3, 1, 2, 40, 16).unbind()


def test_the_tour_of_attention_is_true():
    files = listed("attention(q, k, v, mask=Causal())")
    assert len(files) == len(set(files))
    assert entered(lambda: regard.attention(*qkv(), mask=Causal())) == set(files)


@where_kernels_are
def test_the_tour_of_observe_is_true():
    files = listed("observe(q, k, v, mask=Causal(), stats=[Entropy(), ColumnMass()])")
    assert len(files) == len(set(files))
    stats = [Entropy(), ColumnMass()]
    assert entered(lambda: regard.observe(*qkv(), mask=Causal(), stats=stats)) == set(files)
