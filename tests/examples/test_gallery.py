"""The examples of the gallery run, and show what they say they show; some on less than their own sizes."""

from __future__ import annotations

import ast
import math
import re

import pytest
import torch

from examples.running import FOLDER, PNG, example
from processes import python

DOCS = FOLDER.parent / "docs"
NAMES = example("gallery").NAMES
# Quick enough to hold the page to on every run; the others run in full with -m slow.
QUICK = ["by_hand", "positions", "cost"]
# Lines of an example; those that bring their own data, processor and model have more.
SHORT = {**dict.fromkeys(NAMES, 150), **dict.fromkeys(example("gallery").ONE_FIGURE, 200)}
SHORT |= {"phone_number": 250, "coloured_shapes": 250}
# A number may come out a little differently on another machine.
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def figures(folder) -> list[str]:
    """The figures an example wrote, all of them real pictures."""
    assert all(path.read_bytes().startswith(PNG) for path in folder.iterdir())
    return sorted(path.name for path in folder.iterdir())


def test_a_map_by_hand_is_the_map_of_the_trace(tmp_path):
    found = example("by_hand").main(tmp_path)
    assert set(found) == {"q", "k", "v", "scores", "scaled", "masked", "weights", "output"}
    assert max(found.values()) < 1e-12
    assert figures(tmp_path) == ["by_hand.png", "by_hand_scores.png"]


def test_a_slip_of_the_pen_would_show():
    module = example("by_hand")
    right = module.by_hand(**{name: module.EXAMPLES["cat"][name] for name in ("x", "w_q", "w_k", "w_v")})
    wrong = [[2 * weight for weight in row] for row in right["weights"]]
    assert module.difference(right["weights"], wrong) > 0.9


def test_dot_products_spread_as_the_root_of_the_dim(tmp_path):
    rows = example("scale").main(tmp_path, dims=[4, 16, 256])
    for row in rows:
        assert row.spread == pytest.approx(math.sqrt(row.d), rel=0.05)
        assert row.scaled_spread == pytest.approx(1, rel=0.05)
    assert rows[-1].heaviest > 0.85 > 0.3 > rows[-1].scaled_heaviest
    assert figures(tmp_path) == ["scale.png", "scale_softmax.png"]


def test_saturation_stops_the_gradient(tmp_path):
    found = example("saturation").main(tmp_path, dims=[4, 256, 1024])
    assert found["cold"] < 1e-3 < 0.3 < found["warm"]
    assert found["plain"] < 0.5 * found["scaled"]
    assert figures(tmp_path) == ["saturation.png", "saturation_gradient.png"]


def test_no_spread_with_the_same_mean_score_beats_softmax(tmp_path):
    found = example("softmax_budget").main(tmp_path)
    assert found["others"] <= found["softmax"] + 1e-9
    assert found["left"] < 0.1


def test_entropy_is_lost_in_any_direction_that_keeps_the_mean():
    module = example("softmax_budget")
    weights = module.row(module.SCORES).row(0, 0, 0)
    others, distance = module.steps_away(weights)
    torch.testing.assert_close(others.sum(-1), torch.ones(len(others), dtype=others.dtype))
    torch.testing.assert_close(others @ module.SCORES, (weights @ module.SCORES).expand(len(others)))
    assert distance.max() > 0.1
    even = torch.full_like(weights, 1 / len(weights))  # more even, but of another mean score
    assert module.entropy_of(even) > module.entropy_of(weights)


@pytest.mark.long
def test_a_weight_of_099_may_write_next_to_nothing(tmp_path):
    found = example("not_an_explanation").main(tmp_path, layers=[5, 8])
    assert found["weight"] > 0.98
    assert found["written"] < 0.1
    assert found["least"] < 0.001 < 0.03 < found["most"]
    assert figures(tmp_path) == ["not_an_explanation.png", "not_an_explanation_cuts.png"]


def test_heads_rest_on_the_first_token_and_miss_it(tmp_path):
    found = example("sinks").main(tmp_path, tokens=129)
    assert found["strongest"] > 5 * found["even"]
    assert found["first"] > 10 * abs(found["other"])
    assert figures(tmp_path) == ["sinks.png", "sinks_values.png"]


@pytest.mark.long
def test_what_was_said_before_is_predicted_until_the_heads_that_notice_are_cut(tmp_path):
    found = example("induction").main(tmp_path, said=65)
    assert found["second"] < 0.3 * found["first"]
    assert found["cut"] > 5 * abs(found["spared"])
    assert figures(tmp_path) == ["induction.png", "induction_loss.png"]


@pytest.mark.long
def test_a_head_prefers_the_subject_and_one_the_name_a_pronoun_means(tmp_path):
    found = example("grammar").main(tmp_path, every=5)
    for name in ("subjects", "pronouns"):
        assert found[name] > 4 * found[f"{name} error"] > 0
    assert figures(tmp_path) == ["grammar_pronouns.png", "grammar_subjects.png"]


def test_every_grammar_case_names_two_words_of_its_text():
    module = example("grammar")
    for case in [*module.subjects(), *module.pronouns()]:
        assert case.right != case.rival
        assert {case.right, case.rival} <= set(re.findall(r"\w+", case.text))


def test_heads_decay_with_different_exponents(tmp_path):
    found = example("decay").main(tmp_path, tokens=257)
    assert found["heads"] == 54
    assert found["flattest"] < 0.3 < found["median"] < found["steepest"]
    assert figures(tmp_path) == ["decay.png"]


@pytest.mark.long
def test_the_needle_is_found(tmp_path):
    found = example("needle").main(tmp_path, length=301, depths=2)
    assert found["worst"] > found["control"] + 10
    assert found["best head"] > 5 * found["chance"]
    assert figures(tmp_path) == ["needle.png", "needle_heads.png"]


def test_a_rotary_score_is_the_same_anywhere_in_the_text(tmp_path):
    found = example("positions").main(tmp_path)
    assert abs(found["spread"]) < 1e-9
    assert 0.25 < found["share"] < 0.35


def test_windows_reach_by_layers_and_chunks_do_not(tmp_path):
    found = example("windows").main(tmp_path)
    assert found["window of 16"] == [min(256, 15 * layers + 1) for layers in range(1, 13)]
    assert set(found["chunks of 64"]) == {64}
    assert found["chunks of 64, every 4th layer full"][3] == 256


def test_tiles_need_no_matrix_and_one_order_keeps_the_bits(tmp_path):
    found = example("tiles").main(tmp_path, lengths=[513, 2049])
    assert found["whole"] == 2049**2 > 3 * found["tiles"]
    assert found["same"] == 19
    assert found["differ"] > 0


def test_only_attention_moves_anything_between_tokens(tmp_path):
    found = example("block").main(tmp_path)
    assert found["silenced"] == 1
    assert found["with"] > 10
    assert figures(tmp_path) == ["block.png", "block_parts.png", "block_silenced.png"]


def test_pairs_cost_most_of_the_arithmetic_from_some_length_on(tmp_path):
    found = example("cost").main(tmp_path)
    assert found == {"crossing": 65536, "llama at 128k": 2**34}


@pytest.mark.long
def test_a_state_forgets_and_a_look_does_not(tmp_path):
    found = example("before_attention").main(tmp_path)
    assert found["capacity"] < 32 < 63.9 < found["attention"]
    assert found["walked"] < 1e-6 < 0.99 < found["jumped"]


def differences(page: str, now: str, tolerance: float = 0.05) -> list[str]:
    """Numbers that are further apart than the tolerance and a unit of their last digit; or other words."""
    if [w for w in NUMBER.sub("#", page).split() if w != "#"] != [
        w for w in NUMBER.sub("#", now).split() if w != "#"
    ]:
        return ["the words"]
    found = []
    for a, b in zip(NUMBER.findall(page), NUMBER.findall(now), strict=True):
        x, y = (float(number.replace(",", "").replace("−", "-")) for number in (a, b))
        unit = 10.0 ** -len(a.partition(".")[2]) if "e" not in a else 0.0
        if abs(x - y) > tolerance * abs(x) + 1.01 * unit:
            found.append(f"{a} is now {b}")
    return found


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_the_gallery_says_what_the_example_prints(name, tmp_path, capsys):
    gallery = example("gallery")
    page = gallery.printed_on((DOCS / "gallery.md").read_text(encoding="utf-8"))
    example(name).main(out=tmp_path / "figure.png" if name in gallery.ONE_FIGURE else tmp_path)
    lines = capsys.readouterr().out.rstrip().splitlines()
    now = "\n".join(line for line in lines if not line.startswith("figure"))
    assert differences(page[name], now) == []


@pytest.mark.long
def test_an_example_runs_from_the_shell(tmp_path):
    done = python(FOLDER / "by_hand.py", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert figures(tmp_path) == ["by_hand.png", "by_hand_scores.png"]


def test_the_comparison_with_the_page_sees_other_numbers_and_words():
    assert differences("loss 8.33, 1,024 tokens", "loss 8.34, 1,024 tokens") == []
    assert differences("loss 8.33, 1,024 tokens", "loss 2.00, 1,024 tokens") == ["8.33 is now 2.00"]
    assert differences("loss 8.33", "gain 8.33") == ["the words"]


def test_the_gallery_has_every_example_its_words_and_its_figures():
    module = example("gallery")
    assert sorted([*NAMES, "gallery"]) == sorted(path.stem for path in FOLDER.glob("*.py"))
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    for name, text in module.printed_on(page).items():
        assert module.entry(name, text) in page
        assert module.figures_of(name), name
    assert list(module.printed_on(page)) == NAMES
    assert set(re.findall(r"images/gallery/(\w+\.png)", page)) == {p.name for p in module.IMAGES.iterdir()}


def test_figures_in_the_repository_are_small():
    sizes = {path.name: path.stat().st_size for path in (DOCS / "images" / "gallery").iterdir()}
    assert {name: size for name, size in sizes.items() if size > 80_000} == {}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_says_how_to_run_it(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert f"\n    python examples/{name}.py " in (ast.get_docstring(ast.parse(source)) or "")
    assert len(source.splitlines()) < SHORT[name]
