"""docs/tour.md lists the files that a call enters; here the calls are traced."""

from __future__ import annotations

import gc
import re
import sys
import threading
from pathlib import Path

import torch
from fastapi.testclient import TestClient

import regard
from engine.folded import where_kernels_are
from regard import Causal, ColumnMass, Entropy
from regard.models import bundled, record
from regard.viewer import Settings, create_app

PACKAGE = Path(regard.__file__).parent
OBSERVE = "`observe(q, k, v, mask=Causal(), stats=[Entropy(), ColumnMass()], scale=1)`"
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
    # Threads that begin meanwhile are traced too: the server answers in some of its own.
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        gc.enable()
    return found


def listed(title: str) -> list[str]:
    """The files under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^- \**`([\w/.]+)`", section, flags=re.MULTILINE)


def qkv():
    return torch.randn(3, 1, 2, 40, 16).unbind()


def test_the_tour_of_attention_is_true():
    files = listed("`attention(q, k, v, mask=Causal(), scale=1)`")
    assert len(files) == len(set(files))
    assert entered(lambda: regard.attention(*qkv(), mask=Causal(), scale=1)) == set(files)


@where_kernels_are
def test_the_tour_of_observe_is_true():
    files = listed(OBSERVE)
    assert len(files) == len(set(files))
    stats = [Entropy(), ColumnMass()]
    assert entered(lambda: regard.observe(*qkv(), mask=Causal(), stats=stats, scale=1)) == set(files)


@where_kernels_are
def test_the_tour_from_a_text_to_a_tile_is_true(tmp_path):
    places = iter(range(2))

    def see():
        folder = tmp_path / str(next(places))
        folder.mkdir()
        record(bundled(), "One for the river, two for the hill.", store=folder / "text.regard")
        settings = Settings((folder,), cache=tmp_path / "cache")
        with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
            name = client.get("/api/recordings").json()["default"]
            head = f"/api/recordings/{name}/stacks/decoder/layers/5/heads/0"
            assert client.get(f"{head}/tile?level=0&row=0&col=0").status_code == 200

    files = listed("From `record` to a tile on the screen")
    assert len(files) == len(set(files))
    assert entered(see) - set(listed(OBSERVE)) == set(files)
