"""Every command, from the outside: what it prints, what it writes, what it refuses and how."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import torch

import regard
import regard.models
from regard.cli import app
from regard.models import Recording, bundled, record

README = Path(__file__).parents[2] / "README.md"
# These serve until they are stopped: tests/viewer and tests/mcp.
EXAMPLES = {
    command.callback.__name__: command.epilog.removeprefix("Example: regard ")
    for command in app.registered_commands
    if command.callback.__name__ not in ("view", "mcp")
}


MINE = """
from torch.nn import functional as F

def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


@pytest.fixture
def beginning(monkeypatch, tmp_path) -> Callable[[int], str]:
    """Cuts the bundled story to so many characters: all of it takes minutes, its first words take seconds."""

    def cut(characters: int) -> str:
        story = regard.models.sample_text()[:characters]
        (tmp_path / "beginning.txt").write_text(story, encoding="utf-8")
        monkeypatch.setattr(sys.modules["regard.models.bundled"], "STORY", tmp_path / "beginning.txt")
        return story

    return cut


@pytest.mark.share(2)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_in_the_help_runs(run, name, monkeypatch, tmp_path, beginning):
    beginning(60)
    monkeypatch.setattr(import_module("regard.atlas.needle"), "STORY", 100)
    for copy in re.findall(r"\b\w+\.regard\b", EXAMPLES[name]) if name == "compare" else ():
        run("record", "bundled", "The cat sat on the mat. The cat sat.", "-o", copy, "--layers", "5")
    (tmp_path / "my_attention.py").write_text(MINE, encoding="utf-8")
    # A needle in the book, but over fewer of its tokens.
    status, _, err = run(*shlex.split(EXAMPLES[name].replace("--length 8000", "--length 200")))
    assert status == 0, err


def test_the_help_of_explain_names_the_examples():
    from regard.commands import explain
    from regard.tracing import EXAMPLES

    assert sys.modules[explain.__module__].EXAMPLES == tuple(EXAMPLES)


@pytest.mark.long
def test_the_commands_in_the_readme_run(run, tmp_path, beginning):
    (tmp_path / "story.txt").write_text(beginning(60), encoding="utf-8")
    lines = re.findall(r"^regard (?!view)(.+?)(?: +#.*)?$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 6
    for line in lines:
        status, _, err = run(*shlex.split(line))
        assert status == 0, f"regard {line}: {err}"


def test_record_writes_what_it_says(run):
    status, out, _ = run("record", "bundled", "The cat sat on the mat.", "-o", "cat.regard", "--json")
    assert status == 0
    said = json.loads(out)
    found = Recording.open("cat.regard")
    assert (said["tokens"], said["layers"], said["bytes"]) == (9, 9, found.nbytes)
    assert [token.text for token in found.tokens][1:3] == ["The", " cat"]


def test_record_reads_a_file_and_keeps_to_the_layers_asked_for(run, tmp_path):
    (tmp_path / "story.txt").write_text("Once upon a time.", encoding="utf-8")
    assert run("record", "bundled", "story.txt", "-o", "x.regard", "--layers", "1,3")[0] == 0
    assert list(Recording.open("x.regard").layers) == [1, 3]
    status, out, err = run("plot", "x.regard", "--json")
    assert status == 0, err
    assert json.loads(out)["layer"] == 1


def test_plot_draws_a_textbook_heatmap_of_a_short_range(run, recorded, tmp_path):
    arguments = ["--layer", "5", "--head", "2", "--queries", "3:12", "--keys", "0:12"]
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        assert run("plot", str(recorded), *arguments, "-o", f"map.{ending}")[0] == 0
        assert (tmp_path / f"map.{ending}").read_bytes().startswith(start)


def test_plot_draws_a_long_map_with_a_part_enlarged(recorded):
    from regard.commands.plot import figure_of

    found = Recording.open(recorded)
    n = found.maps[5].shape[2]
    figure = figure_of(found, 5, 2, range(n), range(n), at=(100, 50))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["layer 5, head 2", "queries 84–115, keys 34–65"]
    shown = torch.tensor(figure.axes[1].images[0].get_array().filled(0.0))
    torch.testing.assert_close(shown, found.maps[5][0, 2, 84:116, 34:66].double())


def test_atlas_writes_a_line_for_every_head(run, recorded, tmp_path):
    status, out, _ = run("atlas", str(recorded), "--csv", "heads.csv", "--parquet", "heads.parquet", "--json")
    assert status == 0
    with (tmp_path / "heads.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["layer"], row["head"]) for row in rows] == [
        (str(x), str(y)) for x in (5, 6) for y in range(6)
    ]
    assert len(json.loads(out)["heads"]) == 12
    assert (tmp_path / "heads.parquet").read_bytes().startswith(b"PAR1")


def test_atlas_says_that_no_head_is_of_a_kind_and_which_comes_nearest(run, recorded):
    status, out, _ = run("atlas", str(recorded), "--kind", "retrieval")
    said = " ".join(out.split())
    assert status == 0
    assert "No head is of the kind retrieval on this text." in said
    assert "Which heads find a sentence that a text asks for: regard needle" in said


def test_atlas_keeps_to_one_kind(run, recorded):
    whole = json.loads(run("atlas", str(recorded), "--json")[1])
    kind = next(kind for head in whole["heads"] for kind in head["kinds"])
    part = json.loads(run("atlas", str(recorded), "--kind", kind, "--json")[1])
    assert 0 < len(part["heads"]) == sum(kind in head["kinds"] for head in whole["heads"])


def test_explain_shows_the_numbers_of_a_real_head(run):
    text = "The cat sat on the mat"
    status, out, _ = run("explain", text, "--layer", "5", "--head", "4", "--json")
    assert status == 0
    steps = {step["name"]: step["value"] for step in json.loads(out)["steps"]}
    seen = record(bundled(), text).maps[5][0, 4]
    torch.testing.assert_close(torch.tensor(steps["weights"]), seen)


def test_explain_walks_from_the_input_of_a_layer_to_what_it_gives_back(run):
    text = "The cat sat on the mat"
    status, out, err = run("explain", text, "--layer", "4", "--head", "1", "--query", "mat")
    assert status == 0
    for formula in (
        "input", "q projected = input W_q", "k projected = input W_k", "q = q projected, turned by position",
        "k = k projected, turned by position", "v = input W_v", "scores = q kᵀ", "scaled = scores / √64",
        "heads concatenated = [head 0 … head 5]", "projected = heads concatenated W_o",
    ):  # fmt: skip
        assert f". {formula}\n" in out
    assert "mat is cut into 2 tokens, 'm' and 'at'; the last one is followed: it has read them all.\n" in err
    assert "∅ is '<|endoftext|>', a special token that the tokenizer puts before the text" in err


def test_what_a_layer_gives_back_is_what_the_model_computed(run):
    text = "The cat sat on the mat"
    _, out, _ = run("explain", text, "--layer", "3", "--head", "1", "--json")
    steps = {
        step["name"]: torch.tensor(step["value"])
        for step in json.loads(out)["steps"]
        if step["name"] != "masked"
    }
    model, tokenizer = bundled()
    module, seen = model.model.layers[3].self_attn, []
    hook = module.register_forward_hook(
        lambda module, given, kwargs, made: seen.append((kwargs, made)), with_kwargs=True
    )
    with torch.no_grad():
        model(**tokenizer(text, return_tensors="pt"))
    hook.remove()
    kwargs, made = seen[0]
    torch.testing.assert_close(steps["input"], kwargs["hidden_states"][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(steps["projected"], made[0][0], atol=1e-4, rtol=1e-4)


def test_a_query_counts_when_the_head_is_chosen(run):
    text = "The cat sat on the mat"
    maps = record(bundled(), text).maps
    for query, at in (("sat", 3), ("mat", 7)):
        _, _, err = run("explain", text, "--query", query)
        layer, head = map(int, re.search(r"Layer (\d+), head (\d+)", err).groups())
        best = max(float(maps[i][0, h, at, 1 : at - 1].max()) for i in maps for h in range(6))
        assert float(maps[layer][0, head, at, 1 : at - 1].max()) == best


def test_knockout_says_what_regard_knockout_says(run):
    text = "The heron was called Osgood. The heron, Os"
    status, out, _ = run("knockout", text, "--head", "6.*", "--json")
    assert status == 0
    model, tokenizer = bundled()
    cut = regard.knockout(model, text, tokenizer=tokenizer, heads=[(6, None)])
    assert json.loads(out)["kl"] == pytest.approx(cut.kl)


def test_advise_lists_a_mask_for_each_head(run, recorded):
    status, out, _ = run("advise", str(recorded), "--share", "0.9", "--layer", "5", "--json")
    assert status == 0
    found = json.loads(out)
    assert {one["layer"] for one in found["heads"]} == {5}
    assert all(one["mass"] >= 0.9 for one in found["heads"])
    status, out, _ = run("advise", str(recorded), "--share", "2")
    assert (status, out) == (2, "")


def test_evict_measures_and_draws_what_the_policies_named_lose(run, tmp_path):
    text, figure = "The heron was called Osgood. " * 8, tmp_path / "loss.png"
    given = ("--keep", "20%,0.6", "--policy", "sinks", "--policy", "snapkv")
    status, out, _ = run("evict", text, *given, "--json", "-o", str(figure))
    assert status == 0
    found = json.loads(out)
    assert [(loss["policy"], loss["keep"]) for loss in found["losses"]] == [
        ("sinks", 0.2), ("snapkv", 0.2), ("sinks", 0.6), ("snapkv", 0.6),
    ]  # fmt: skip
    assert figure.read_bytes()[:4] == b"\x89PNG"
    status, out, _ = run("evict", text, *given, "--heads", "2")
    assert status == 0
    assert "2 policies on a prompt of" in out
    assert "snapkv, 20% kept: the heads that lose most" in out


def test_knockout_cuts_ranges_of_edges(run):
    text = "The heron was called Osgood. The heron, Os"
    status, out, _ = run("knockout", text, "--edge", "*.*:8:0-3", "--json")
    assert status == 0
    model, tokenizer = bundled()
    cut = regard.knockout(model, text, tokenizer=tokenizer, edges=[(None, None, 8, range(4))])
    assert json.loads(out)["kl"] == pytest.approx(cut.kl)


def test_needle_over_several_lengths_is_a_grid(run):
    status, out, _ = run("needle", "--depths", "2", "--lengths", "160,200", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["lengths"] == [160, 200]
    assert [len(row) for row in found["gains"]] == [2, 2]


def test_needle_reports_every_depth(run):
    status, out, _ = run("needle", "--depths", "2", "--length", "200", "--json")
    assert status == 0
    assert len(json.loads(out)["log_probability"]) == 2


def test_compare_finds_no_change_between_a_recording_and_itself(run, recorded):
    status, out, _ = run("compare", str(recorded), str(recorded), "--json")
    assert status == 0
    assert {change["distance"] for change in json.loads(out)["changes"]} == {0.0}


def test_compare_tells_two_texts_apart(run, recorded):
    run(
        "record",
        "bundled",
        "One two three four five six seven eight nine ten.",
        "-o",
        "b.regard",
        "--layers",
        "5,6",
    )
    status, out, _ = run("compare", str(recorded), "b.regard")
    assert status == 0
    said = " ".join(out.split())
    # Too few tokens for any kind to have a score.
    assert "have the same heads; no head's score changed by 0.01 or more, in any kind." in said
    assert re.search(r"b\.regard has \d+ tokens.*, and below 64 few kinds show\.", said)


def test_info_names_the_versions_and_a_backend(run):
    found = json.loads(run("info", "--json")[1])
    assert found["versions"]["regard"] == regard.__version__
    assert found["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert found["backends"]["cpu, plain"].startswith("sdpa: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["record", "bundled", "  "], "the text is empty; give at least one word."),
        (["record", "bundled", "x", "--layers", "a"], "--layers is 'a'; wanted numbers such as 0,3,5."),
        (
            ["record", "bundled", "x", "-o", "no/x.regard"],
            "no/x.regard cannot be written: there is no such folder. Name one that exists.",
        ),
        (["plot", "{}", "--layer", "4"], "layer 4 of the decoder was not recorded; recorded are: 5, 6."),
        (["plot", "{}", "--layer", "5", "--head", "8"], "layer 5 has no head 8; its heads are 0 to 5."),
        (
            ["plot", "{}", "--layer", "5", "-o", "map.bmp"],
            "map.bmp has the ending '.bmp'; wanted one of .png, .svg, .pdf.",
        ),
        (
            ["plot", "{}", "--layer", "5", "--queries", "5000:6000"],
            "--queries is '5000:6000'; the recording has 0:{n}.",
        ),
        (
            ["plot", "{}", "--layer", "5", "-o", "no/map.png"],
            "no/map.png cannot be written: there is no such folder. Name a file in a folder that exists.",
        ),
        (["atlas", "{}", "--kind", "lazy"], "there is no kind 'lazy'; kinds are: "),
        (["explain", "--layer", "3"], "a model and a head need a text: "),
        (["explain", "word " * 70], "too many to write out (at most 64)."),
        (
            ["explain", "A cat, a mat", "--query", "dog"],
            "no query is called 'dog'; there are 'A', 'cat', 'a', 'mat'.",
        ),
        (["explain", "a cat, a mat", "--query", "a"], "query 'a' occurs 2 times, at "),
        (["explain", "A cat", "--query", "9"], "query 9 is out of range; there are "),
        (["knockout", "The cat"], "nothing was named to cut; give --head 6.3, "),
        (["knockout", "The cat", "--head", "6"], "--head is '6'; wanted LAYER.HEAD such as 6.3, "),
        (["knockout", "The cat", "--head", "9.0"], "9"),
        (["knockout", "The cat", "--edge", "1.x:0:0"], "'x' is not a number, a range or *."),
        (["knockout", "The cat", "--sweep", "all"], "--sweep is 'all'; wanted heads or keys."),
        (["needle", "--needle", "A cat."], "give both --needle and --question: "),
        (["needle", "--length", "9", "--lengths", "9"], "--length and --lengths were both given; use one"),
        (["needle", "--lengths", "9,x"], "--lengths is '9,x'; wanted numbers of tokens such as 150,300,600."),
        (["evict", "--keep", "25"], "keep is [25.0]; wanted shares of the keys, above 0 and at most 1."),
        (["evict", "--keep", "a,b"], "--keep is 'a,b'; wanted shares such as 0.1,0.25 or 10%,25%."),
        (["evict", "--policy", "best"], "there is no policy 'best'; there are snapkv, "),
        (["evict", "--needle", "--prompt", "9"], "--needle and --prompt were both given; "),
        (["evict", "--length", "1"], "--length is 1; wanted at least 2 tokens, "),
        (["evict", "-o", "no/x.png"], "no/x.png cannot be written: there is no such folder."),
        (["compare", "{}", "nowhere.regard"], "nowhere.regard"),
        (["report", "{}", "-o", "no/x.html"], "no/x.html cannot be written: there is no such folder."),
    ],
)
def test_a_refusal_is_one_line_and_status_2(run, recorded, arguments, text):
    n = Recording.open(recorded).maps[5].shape[2]
    status, out, err = run(*(part.replace("{}", str(recorded)) for part in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("regard: ")
    assert err.count("\n") == 1
    assert text.replace("{n}", str(n)) in err
