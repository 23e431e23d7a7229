"""docs/json.md: the keys that the page names are the keys that commands print."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from docs.pages import DOCS
from regard.cli import app
from regard.models import bundled, record, sample_text

ROWS = dict(
    re.findall(r"^\| `regard ([^`]+)` \| ([^|]+) \|", (DOCS / "json.md").read_text("utf-8"), re.MULTILINE)
)
# The cheapest call of each.
CALLS = {
    "record": "record bundled story.txt -o new.regard",
    "plot": "plot x.regard --layer 5",
    "report": "report x.regard",
    "atlas": "atlas x.regard",
    "advise": "advise x.regard",
    "compare": "compare x.regard x.regard",
    "knockout": "knockout bundled story.txt --head 6.3",
    "knockout --sweep": 'knockout bundled "A lamp." --sweep keys',
    "needle": "needle bundled --depths 1 --length 150",
    "evict": "evict bundled story.txt --prompt 20 --policy sinks --keep 0.5",
    "check": 'check "softmax(1, 2, 3) = 0.09, 0.24, 0.67"',
    "cost": "cost llama-3.1-8b --context 4k",
    "explain": "explain",
    "exercise show": "exercise show 4",
    "doctor": "doctor mine.py:attention --causal",
    "info": "info",
}
# What takes minutes: tests of their own read what these print.
ELSEWHERE = {"claims": "tests/claims", "corpus show": "tests/corpus/test_views.py"}
MINE = """
from torch.nn import functional as F

def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json") / "x.regard"
    record(bundled(), sample_text()[:400], layers=[5], store=folder)
    return folder


def test_every_command_that_prints_json_is_on_the_page():
    named = {name.split()[0] for name in ROWS}
    commands = {command.callback.__name__ for command in app.registered_commands} | {"corpus"}
    assert commands - named == {"view", "mcp"}
    assert set(ROWS) == set(CALLS) | set(ELSEWHERE)


@pytest.mark.parametrize("name", CALLS)
def test_a_command_prints_the_keys_that_the_page_names(name, run, recording, tmp_path):
    (tmp_path / "story.txt").write_text(sample_text()[:200], encoding="utf-8")
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    (tmp_path / "x.regard").symlink_to(recording)
    status, out, err = run(*shlex.split(CALLS[name]), "--json")
    assert status == 0, err
    assert list(json.loads(out)) == re.findall(r"`([^`]+)`", ROWS[name])
    assert out.count("\n") == 1
