"""The server for agents: its tools answer what the library answers, and refuse in one sentence."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import regard
from loops import finished
from regard.errors import RegardError
from regard.mcp.desk import KEPT, Desk
from regard.models import Recording, bundled, record

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="no mcp: pip install 'regard[mcp]'")

TEXT = "The heron was called Osgood. The heron, Os"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recordings") / "heron.regard"
    record(bundled(), TEXT, store=path)
    return path


def call(desk: Desk, tool: str, /, **arguments: Any) -> Any:
    """What an agent gets from a tool, through the protocol's own client."""
    from mcp import Client
    from regard.mcp import create_server

    async def ask() -> Any:
        async with Client(create_server(desk)) as client:
            return await client.call_tool(tool, arguments)

    answer = finished(ask())
    if answer.is_error:
        raise RegardError(answer.content[0].text)
    return answer.structured_content


def test_tools_answer_what_the_library_answers(saved):
    desk, opened = Desk([saved]), Recording.open(saved)
    assert call(desk, "recordings")["recordings"][0]["name"] == "heron.regard"
    cell = call(desk, "cell", recording="heron.regard", layer=6, head=3, query=-1, key=4)
    assert cell["weight"] == pytest.approx(float(opened.maps[6][0, 3, -1, 4]))
    assert cell["query"] == opened.tokens[-1].text
    row = call(desk, "row", recording="heron.regard", layer=6, head=3, query=-1, top=2)
    weights = opened.maps[6][0, 3, -1]
    assert [key["key"] for key in row["keys"]] == weights.topk(2).indices.tolist()
    found = call(desk, "atlas", recording="heron.regard")
    assert {kind: len(heads) for kind, heads in found["kinds"].items()} == {
        kind: len(cards) for kind, cards in opened.atlas().kinds.items()
    }


def test_a_text_is_recorded_in_memory_and_a_head_cut(saved):
    desk = Desk()
    made = call(desk, "record", text="The badger lit the lamp.")
    assert (made["name"], made["model"], len(made["layers"])) == ("text-1", "bundled", 9)
    assert call(desk, "tokens", recording="text-1", start=1)["tokens"][0] == "The"
    assert call(desk, "cell", recording="text-1", layer=0, head=0, query=0, key=3)["score"] is None
    cut = call(desk, "knock_out", text=TEXT, heads=["6.3"])
    model, tokenizer = bundled()
    assert cut["kl"] == pytest.approx(regard.knockout(model, TEXT, tokenizer=tokenizer, heads=[(6, 3)]).kl)


def test_check_and_cost_need_no_model():
    assert call(Desk(model="./nowhere"), "check", text="softmax(1, 2, 3) = 0.09, 0.24, 0.67")["ok"]
    assert call(Desk(), "cost", model="llama-3.1-8b", context="4k", gpu="H200")


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (
            "cell",
            {"recording": "x", "layer": 0, "head": 0, "query": 0, "key": 0},
            "there is no recording 'x'",
        ),
        ("row", {"recording": "heron.regard", "layer": 9, "head": 0, "query": 0}, "layer 9"),
        ("row", {"recording": "heron.regard", "layer": 0, "head": 9, "query": 0}, "has no head 9"),
        ("row", {"recording": "heron.regard", "layer": 0, "head": 0, "query": 999}, "999"),
        ("atlas", {"recording": "heron.regard", "kind": "lazy"}, "there is no kind 'lazy'"),
        ("record", {"text": " "}, "the text is empty"),
        ("record", {"text": "a" * 200_001}, "at most 200,000"),
        ("knock_out", {"text": TEXT, "heads": ["six"]}, "wanted a layer and a head"),
        ("cost", {"model": "nope"}, "there is no preset 'nope'"),
    ],
)
def test_a_refusal_reaches_the_agent(saved, name, arguments, said):
    with pytest.raises(RegardError, match=said):
        call(Desk([saved]), name, **arguments)


def test_nothing_is_written_unless_a_folder_was_named(saved, tmp_path):
    from mcp import Client
    from regard.mcp import create_server

    async def names(desk: Desk) -> set[str]:
        async with Client(create_server(desk)) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert "save" not in finished(names(Desk([saved])))
    with pytest.raises(RegardError, match="this server is read-only"):
        Desk([saved]).save("heron.regard", "copy")
    desk = Desk([saved], write=tmp_path)
    assert "save" in finished(names(desk))
    assert call(desk, "save", recording="heron.regard", name="copy.regard") == {"saved": "copy.regard"}
    assert Recording.open(tmp_path / "copy.regard").complete
    for name in ("../out", "a/b", ".hidden", ""):
        with pytest.raises(RegardError, match="is no name for a recording"):
            desk.save("heron.regard", name)
    with pytest.raises(RegardError, match="holds a recording already"):
        desk.save("heron.regard", "copy.regard")


def test_only_the_newest_recordings_are_kept(monkeypatch):
    desk = Desk()
    monkeypatch.setattr(
        "regard.mcp.desk.record_text", lambda *_: Recording(record(bundled(), "A", layers=[0]).model)
    )
    monkeypatch.setattr("regard.mcp.desk._about", lambda _: {})
    for _ in range(KEPT + 2):
        desk.record("A lamp.")
    assert list(desk._made) == [f"text-{n}" for n in range(3, KEPT + 3)]
