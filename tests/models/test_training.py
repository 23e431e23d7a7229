"""The program that makes the bundled model, on data small enough to train on here."""

from __future__ import annotations

import csv
import doctest
import importlib
import json
import lzma
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from effort import examples

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
pytest.importorskip("training", reason="the training program is in the repository, not in the package")

from training.corpus import (  # noqa: E402
    clean,
    hold_out,
    plain,
    read_books,
    set_aside,
    without_copies,
)
from training.evaluate import (  # noqa: E402
    attention_weights,
    continuations,
    head_scores,
    losses_by_position,
    needles,
    repetition,
    token_losses,
    validation_loss,
)
from training.export import round_to_bfloat16, save_model  # noqa: E402
from training.facts import Fact, load_facts, make_facts, save_facts  # noqa: E402
from training.hybrid import Hybrid, Shape  # noqa: E402
from training.muon import Muon, orthogonal  # noqa: E402
from training.ngrams import NGramModel  # noqa: E402
from training.rows import ANSWER, UNKNOWABLE, Rows, plant, shifted, whole  # noqa: E402
from training.settings import Settings, Stage  # noqa: E402
from training.tokens import load_tokens, save_tokens  # noqa: E402

SMALL = Shape(
    vocabulary=65, width=24, layers=3, heads=6, kv_heads=2, head_dim=4, hidden=40, window=7, context=63
)


MODULES = sorted(path.stem for path in (ROOT / "training").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"training.{name}")).failed == 0


def small_model(seed: int = 0) -> Hybrid:
    torch.manual_seed(seed)
    model = Hybrid(SMALL).eval()
    with torch.no_grad():
        # Weights large enough that maps are far from uniform, gains that are not all 1.
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3 + (weight.ndim == 1))
    return model


def transformers_twin(model: Hybrid):
    transformers = pytest.importorskip("transformers")
    config = transformers.SmolLM3Config(**model.shape.to_config())
    twin = transformers.SmolLM3ForCausalLM(config).float().eval()
    missing, unexpected = twin.load_state_dict(model.state_dict(), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    twin.tie_weights()
    return twin


@pytest.mark.parametrize("length", [1, 2, 63, 150])
def test_the_plain_model_and_transformers_give_the_same_logits(length):
    model = small_model()
    twin = transformers_twin(model).double()
    ids = torch.randint(65, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model.double()(ids), twin(ids).logits, atol=1e-5, rtol=1e-5)


def test_the_bundled_shape_and_transformers_give_the_same_logits():
    torch.manual_seed(0)
    model = Hybrid(Shape(layers=3)).eval()
    ids = torch.randint(4096, (1, 1030))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), transformers_twin(model)(ids).logits, atol=1e-5, rtol=1e-5)


def test_the_explicit_maps_are_those_of_transformers():
    model = small_model()
    twin = transformers_twin(model)
    twin.set_attn_implementation("eager")
    ids = torch.randint(65, (1, 63))
    with torch.no_grad():
        expected = twin(ids, output_attentions=True).attentions
    for ours, theirs in zip(attention_weights(model, ids[0]), expected, strict=True):
        torch.testing.assert_close(ours, theirs[0], atol=1e-5, rtol=1e-5)


def test_a_window_is_as_many_keys_as_transformers_lets_in():
    maps = attention_weights(small_model(), torch.arange(1, 40))
    seen = [int((weights[:, -1] > 0).sum(-1).max()) for weights in maps]
    assert seen == [7, 7, 39]


def test_the_bundled_shape_fits_28_megabytes_in_bfloat16():
    with torch.device("meta"):
        count = sum(p.numel() for p in Hybrid(Shape()).parameters())
    assert count == Shape().parameters
    assert 2 * count < 28_000_000


def test_a_step_reads_the_same_tokens_in_rows_of_any_length():
    model, ids = small_model(), torch.randint(1, 65, (4, 15))
    apart = torch.cat([model(row[None]) for row in ids])
    torch.testing.assert_close(model(ids), apart, atol=1e-5, rtol=1e-5)


def test_the_loss_weighs_tokens():
    model, ids = small_model(), torch.randint(1, 65, (2, 10))
    ids, targets = shifted(ids)
    weights = torch.zeros(2, 10)
    weights[1, 3], weights[0, 7] = 3.0, 1.0
    losses = token_losses(model, ids, targets)
    expected = (3 * losses[1, 3] + losses[0, 7]) / 4
    assert model.loss(ids, targets, weights).item() == pytest.approx(float(expected), rel=1e-5)


def test_orthogonal_matrices_keep_their_singular_vectors():
    random = torch.Generator().manual_seed(0)
    for shape in ((3, 8, 20), (3, 20, 8)):
        x = torch.randn(shape, generator=random)
        u, _, vh = torch.linalg.svd(x, full_matrices=False)
        inside = u.mT @ orthogonal(x).float() @ vh.mT
        lengths = inside.diagonal(dim1=1, dim2=2)
        assert lengths.min() > 0.6
        assert lengths.max() < 1.3
        assert (inside - torch.diag_embed(lengths)).abs().max() < 0.05


def test_muon_steps_equally_far_in_every_direction_and_decays():
    weight = torch.nn.Parameter(torch.eye(4))
    weight.grad = torch.diag(torch.tensor([100.0, 1.0, 10.0, 30.0]))
    Muon([weight], lr=0.1, weight_decay=0.5).step()
    moved = 0.95 - weight.detach().diagonal()
    assert moved.min() > 0.06
    assert moved.max() < 0.13
    assert weight.detach().fill_diagonal_(0).abs().max() < 0.01


def test_muon_learns_what_it_is_asked():
    torch.manual_seed(0)
    wanted, layers = torch.randn(3, 6, 6), [torch.nn.Linear(6, 6, bias=False) for _ in range(3)]
    optimizer = Muon([layer.weight for layer in layers], lr=0.05)
    losses = []
    for _ in range(60):
        loss = sum((layer.weight - w).square().mean() for layer, w in zip(layers, wanted, strict=True))
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.1 * losses[0]


def test_saved_weights_load_into_transformers_with_the_same_logits(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = small_model()
    round_to_bfloat16(model)
    assert save_model(model, tmp_path).name == "model.safetensors"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    loaded = transformers.SmolLM3ForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(65, (1, 63))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), loaded(ids).logits, atol=1e-5, rtol=1e-5)


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=200))
@examples(10)
def test_tokens_survive_the_disk(tmp_path_factory, tokens):
    path = tmp_path_factory.mktemp("tokens") / "t.bin.xz"
    save_tokens(path, np.array(tokens, np.uint16))
    assert load_tokens(path).tolist() == tokens


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_n_gram_probabilities_of_all_next_tokens_sum_to_one(order):
    tokens = np.random.default_rng(0).integers(0, 7, 500)
    model = NGramModel(tokens, order, 7)
    contexts = np.random.default_rng(1).integers(0, 7, (20, order - 1))
    for context in contexts:
        p = [model.probabilities(np.array([*context, w]))[-1] for w in range(7)]
        assert sum(p) == pytest.approx(1.0)
        assert min(p) > 0


def test_a_longer_n_gram_predicts_a_periodic_text_better():
    text = np.tile([1, 2, 1, 3], 200)
    losses = [NGramModel(text[:600], order, 8).loss(text[600:]) for order in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2]
    assert losses[2] < 0.1


def test_bigram_probabilities_follow_kneser_and_ney_by_hand():
    # Bigrams: 1 2 twice, 2 1 once, 2 3 once. Too few counts to estimate discounts, so each is 0.5.
    model = NGramModel(np.array([1, 2, 1, 2, 3]), 2, 4)
    # Lowest order: 1, 2, 3 each stand after one different token; left over is 3 * 0.5 / 3 for 4 tokens.
    unigram = 0.5 / 3 + 0.5 / 4
    assert model.probabilities(np.array([1, 2]))[1] == pytest.approx(1.5 / 2 + 0.25 * unigram)
    assert model.probabilities(np.array([1, 3]))[1] == pytest.approx(0.25 * unigram)
    assert model.probabilities(np.array([2, 3]))[1] == pytest.approx(0.5 / 2 + 0.5 * unigram)


def test_cleaning_drops_notes_and_tables_and_keeps_the_story():
    book = (
        "Transcriber's note: see https://x\n\nCHAPTER I\n\n“Oh!” she _cried_.\n\n| 1 | 22 | 333 | 4444 | 5 |"
    )
    assert clean(book) == 'CHAPTER I\n\n"Oh!" she cried.'


def test_plain_leaves_ascii_alone():
    assert plain('It\'s "plain" -- already.\n') == 'It\'s "plain" -- already.\n'


def stories(count: int, seed: int = 0) -> list[str]:
    """Books of twelve long paragraphs each, all different."""
    random = np.random.default_rng(seed)
    words = ["the", "fox", "ran", "home", "and", "sang", "to", "a", "little", "owl", "under", "snow"]
    paragraph = lambda i: f"Part {i}. " + " ".join(random.choice(words, 40)) + "."  # noqa: E731
    return ["\n\n".join(paragraph(i) for i in range(12)) for _ in range(count)]


def test_a_story_in_two_editions_is_never_held_out():
    twins = stories(2, seed=5)
    books = stories(60) + twins + [book.upper().replace(" ", "  ") for book in twins]
    train, validation = hold_out([books], 0.2)
    assert sorted(train + validation) == sorted(books)
    assert 0.2 * sum(map(len, books)) <= sum(map(len, validation)) < 0.3 * sum(map(len, books))
    assert all(book in train for book in books[60:])


def test_every_shelf_gives_books_to_validation():
    shelves = [stories(40, seed=1), stories(40, seed=2)]
    _, validation = hold_out(shelves, 0.1)
    assert all(any(book in shelf for book in validation) for shelf in shelves)


def test_long_books_are_set_aside_unless_a_twin_is_there():
    twins = stories(1, seed=5) * 2
    books = stories(10) + twins
    rest, aside = set_aside(books, 3, characters=100)
    assert sorted(rest + aside) == sorted(books)
    assert len(aside) == 3
    assert twins[0] not in aside
    assert set_aside(books, 3, characters=10**6) == (books, [])


def test_no_copy_of_the_bundled_book_is_read():
    books = stories(6)
    edition = "A NEW EDITION\n\n" + books[2].upper()
    assert without_copies([*books, edition], books[2]) == [*books[:2], *books[3:]]


def test_facts_differ_and_survive_the_disk(tmp_path):
    made = make_facts(500)
    assert len({question for question, _ in made}) == 500
    assert make_facts(500) == made
    assert not any(word in text for pair in made for text in pair for word in ("donkey", "mill ", "Barnaby"))
    facts = [Fact((1, 2), (3, 4), (5,)), Fact((6,), (7,), (8, 9))]
    save_facts(tmp_path / "facts", facts)
    assert load_facts(tmp_path / "facts") == facts


def occurrences(row: np.ndarray, piece: tuple[int, ...]) -> list[int]:
    windows = np.lib.stride_tricks.sliding_window_view(row, len(piece))
    return np.flatnonzero((windows == piece).all(1)).tolist()


@given(st.integers(0, 10_000), st.integers(200, 700))
@example(625, 200)  # no sentence ends in time
@examples(30)
def test_planted_facts_stand_before_their_questions_and_the_last_is_asked_at_the_end(seed, length):
    import random

    choose = random.Random(seed)
    facts = [Fact((100 + i, 200), (300 + i, 200), (400 + i, 500 + i)) for i in range(4)]
    text = np.random.default_rng(seed).choice([14, 60, 61, 62], length)
    row, answers = plant(text, facts, np.array([14]), 9, choose)
    assert len(row) == length
    assert row[-5:].tolist() == [9, 103, 200, 403, 503]
    assert occurrences(row[:-4], (303, 200, 403, 503))
    assert set(answers.tolist()) >= {length - 2, length - 1}
    for i, fact in enumerate(facts):
        asked = occurrences(row, fact.question)
        told = occurrences(row, (*fact.spaced, *fact.answer))
        assert all(told and told[0] < at for at in asked)
        wanted = {at + 2 + j for at in asked for j in range(2) if at + 2 + j < length}
        assert {a for a in answers.tolist() if row[a] in fact.answer} <= wanted, i
    # Facts stand between sentences: behind a full stop, a question, or at the beginning.
    for at in occurrences(row, (303, 200)):
        assert at == 0 or row[at - 1] in (14, 9)


def test_rows_weigh_answers_more_and_what_cannot_be_known_less():
    tokens = torch.randint(10, 65, (5000,), generator=torch.Generator().manual_seed(0))
    facts = [Fact((1, i), (2, i), (3, 4)) for i in range(5, 9)]
    _, targets, weights = next(
        iter(rows_of(tokens, planted=1.0, facts=facts, sentence_ends=[14], context=512))
    )
    assert weights[:, -2:].tolist() == [[ANSWER, ANSWER]] * 4
    assert targets[:, -2:].tolist() == [[3, 4]] * 4
    assert ((targets == 3) | (targets == 4))[weights == ANSWER].all()
    _, targets, weights = next(iter(rows_of(tokens, repeated=1.0)))
    unknowable = (weights == weights.min()).sum(1).tolist()
    assert float(weights.min()) == pytest.approx(UNKNOWABLE)
    for row, first in zip(targets, unknowable, strict=True):
        assert first == 65 or torch.equal(row[first:], row[: 65 - first]) or first == 0


def rows_of(tokens: torch.Tensor, **options) -> Rows:
    return Rows(tokens, 9, **({"batch": 4, "context": 65, "repeated": 0.0, "vocabulary": 65} | options))


def test_an_epoch_begins_rows_with_paragraphs_and_covers_the_text():
    tokens = torch.arange(10, 2010) % 50 + 10
    tokens[9::10] = 9
    rows = rows_of(tokens, batch=1)
    seen = set()
    for ids, targets, _ in rows:
        if rows.epoch:
            break
        assert ids[0, 0] == 0
        assert torch.equal(ids[0, 1:], targets[0, :-1])
        start = int((tokens.unfold(0, 65, 1) == targets[0]).all(1).nonzero()[0])
        assert start == 0 or tokens[start - 1] == 9 or start == len(tokens) - 65
        seen.add(int(targets[0, 0]))
    assert rows.epoch == 1


def test_repeated_rows_are_periodic_and_every_token_is_a_target():
    tokens = torch.randint(10, 65, (5000,), generator=torch.Generator().manual_seed(0))
    ids, targets, _ = next(iter(rows_of(tokens, repeated=0.5)))
    periodic = [any(torch.equal(row[:-p], row[p:]) for p in range(16, 33)) for row in targets]
    assert periodic == [False, False, True, True]
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert targets.min() > 0


def test_short_segments_are_repeated_as_often_as_long_ones(monkeypatch):
    drawn = []
    monkeypatch.setattr("training.rows.tiled", lambda rows, lengths: drawn.append(lengths) or rows)
    next(iter(rows_of(torch.full((5000,), 10), batch=999, repeated=1.0, context=2048)))
    (lengths,) = drawn
    assert 16 <= lengths.min() < 20
    assert 950 < lengths.max() <= 1024
    assert 0.4 < (lengths < 128).float().mean() < 0.6


def test_the_same_seed_draws_the_same_rows():
    tokens = torch.randint(9, 65, (5000,), generator=torch.Generator().manual_seed(0))
    batches = [iter(rows_of(tokens, repeated=0.25, seed=seed)) for seed in (3, 3, 4)]
    first, again, other = ([next(batch)[0] for _ in range(3)] for batch in batches)
    assert torch.equal(torch.stack(first), torch.stack(again))
    assert not torch.equal(torch.stack(first), torch.stack(other))


@given(st.integers(1, 40), st.integers(1, 17))
@examples(30)
def test_evaluation_counts_every_token_once(length, context):
    tokens = torch.arange(1, length + 1)
    ids, targets = whole(tokens, context)
    assert ids.shape == targets.shape
    assert torch.equal(targets[targets != -100], tokens)


def test_validation_loss_is_the_mean_over_tokens():
    model, tokens = small_model(), torch.randint(65, (100,))
    ids, targets = whole(tokens, 63)
    log_p = model(ids).detach().log_softmax(-1)
    expected = -log_p[targets != -100].gather(1, tokens[:, None]).mean()
    assert validation_loss(model, tokens, 63) == pytest.approx(float(expected), rel=1e-5)


def test_head_scores_read_the_right_cells(monkeypatch):
    def shifted_maps(model, ids):
        """Layer 0 attends to the token before; layer 1 to the one after the last occurrence; layer 2 to 0."""
        n = len(ids)
        q = torch.arange(n)
        last = torch.tensor(
            [max([j for j in range(i) if ids[j] == ids[i]], default=-1) + 1 for i in range(n)]
        )
        keys = (q - 1).clamp(min=0), last, torch.zeros(n, dtype=torch.long)
        return [torch.nn.functional.one_hot(k, n).float().expand(6, n, n) for k in keys]

    monkeypatch.setattr("training.evaluate.attention_weights", shifted_maps)
    scores = head_scores(Hybrid(SMALL), torch.arange(64).view(2, 32), delimiters=[0])
    assert scores["previous"][0] == [1.0] * 6
    assert scores["sink"][2] == [1.0] * 6
    assert scores["delimiter"][2] == [1.0] * 6


@pytest.mark.parametrize("period", [5, 10])
def test_induction_is_read_at_the_cells_that_the_formula_names(period):
    model = small_model()
    seen = repetition(model, period, 2, torch.device("cpu"))
    once = torch.randint(1, 65, (2, period), generator=torch.Generator().manual_seed(1))
    ids, targets = shifted(once.repeat(1, 2))
    expected = torch.stack(
        [
            torch.stack(
                [w.diagonal(1 - period, -2, -1)[:, 2:].mean(-1) for w in attention_weights(model, row)]
            )
            for row in ids
        ]
    ).mean(0)
    torch.testing.assert_close(torch.tensor(seen["induction"]), expected, atol=1e-4, rtol=0)
    losses = token_losses(model, ids, targets)
    assert seen["second"] == pytest.approx(float(losses[:, period + 1 :].mean()), rel=1e-5)


def test_losses_by_position_are_those_of_the_tokens_there():
    model, rows = small_model(), torch.randint(1, 65, (3, 150))
    losses = token_losses(model, *shifted(rows))
    found = losses_by_position(model, rows)
    assert [(x["from"], x["to"]) for x in found] == [(0, 64), (64, 128), (128, 150)]
    for x in found:
        assert x["loss"] == pytest.approx(float(losses[:, x["from"] : x["to"]].mean()), rel=1e-5)


def test_a_needle_is_hidden_where_it_should_be_and_read_by_the_formula(monkeypatch):
    model, hay = small_model(), torch.randint(20, 60, (2, 60), generator=torch.Generator().manual_seed(0))
    hay[:, 9::10] = 14
    read = []
    original = sys.modules["training.evaluate"]._asked
    monkeypatch.setattr(
        "training.evaluate._asked", lambda *given: (read.append(given[1:]), original(*given))[1]
    )
    found = needles(model, hay, [Fact((1, 2), (3, 2), (5, 6))], 3, 9, [14])
    assert (found["depths"], found["tokens"], found["rows"]) == ([0.0, 0.5, 1.0], 60, 2)
    places = []
    for ids, source, reply in read:
        assert (len(ids), ids[0]) == (60, 0)
        assert ids[source.start - 2 : source.stop + 1].tolist() == [3, 2, 5, 6, 14]
        assert ids[-5:].tolist() == [9, 1, 2, 5, 6]
        assert reply == range(58, 60)
        places.append(source.start - 3)
    assert places[:2] == [0, 0]
    assert places[4] > 40
    # At the beginning, behind a full stop, or at the end of all the hay.
    assert all(ids[place] in (0, 14) or place == 49 for (ids, *_), place in zip(read, places, strict=True))
    ids, source, reply = read[2]
    maps, log_p = attention_weights(model, ids), model(ids[None])[0].detach().log_softmax(-1)
    look = torch.stack([w[:, 57:59, source.start : source.stop].sum(-1).mean(-1) for w in maps])
    _, chance, heads = original(model, ids, source, reply)
    torch.testing.assert_close(heads, look, atol=1e-5, rtol=1e-4)
    assert chance == pytest.approx(float(log_p[57, 5] + log_p[58, 6]), rel=1e-4)


def test_an_untrained_model_gains_nothing_from_repetition():
    torch.manual_seed(0)
    seen = repetition(Hybrid(SMALL).eval(), 31, 4, torch.device("cpu"))
    assert seen["first"] == pytest.approx(np.log(65), abs=0.1)
    assert seen["second"] == pytest.approx(seen["first"], abs=0.1)


def test_sampling_with_a_seed_repeats_itself_and_keeps_the_prompt():
    prompts = torch.tensor([[0, 5], [0, 6]])
    once, again = (continuations(small_model(), prompts, 70, seed=2) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == (2, 72)
    assert torch.equal(once[:, :2], prompts)


@given(st.integers(0, 1000), st.floats(0, 1))
@examples(50)
def test_the_learning_rate_stays_between_zero_and_its_peak(step, elapsed):
    assert 0 <= Settings().rate(step, elapsed) <= 1


def test_a_run_of_so_many_steps_ends_annealed():
    assert Settings(steps=100, warmup=10).rate(100, 0.1) == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    pytest.importorskip("tokenizers")
    from training.prepare import prepare

    folder = tmp_path_factory.mktemp("data")
    for name, seed in (("a", 1), ("b", 2)):
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress("\n\n\n".join(stories(60, seed)).encode()))
    prepare(sorted(folder.glob("*.txt.xz")), folder, held_out=0.1, long=(3, 1000), facts=300)
    return folder


def test_prepared_tokens_are_the_books(prepared):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    facts = json.loads((prepared / "baselines.json").read_text())
    books = [book for name in "ab" for book in read_books(prepared / f"{name}.txt.xz")]
    found = []
    for name in ("train", "validation", "long"):
        tokens = load_tokens(prepared / f"{name}.bin.xz")
        assert facts["tokens"][name] == len(tokens)
        assert tokens[-1] == 0
        parts = np.split(tokens, np.flatnonzero(tokens == 0) + 1)[:-1]
        found += [tokenizer.decode(part[:-1].tolist()) for part in parts]
    assert sorted(found) == sorted(books)
    assert tokenizer.id_to_token(facts["paragraph_end"]) == "ĊĊ"


def test_the_baselines_improve_with_order(prepared):
    losses = json.loads((prepared / "baselines.json").read_text())["nats_per_token"]
    assert losses["unigram"] > losses["bigram"]


@pytest.fixture(scope="module")
def trained(prepared, tmp_path_factory) -> Path:
    from training.train import Run

    folder = tmp_path_factory.mktemp("run")
    shape = Shape(
        width=32, layers=2, heads=2, kv_heads=1, head_dim=16, hidden=32, every=2, window=9, context=128
    )
    short = Settings(
        minutes=1, steps=30, tokens=256, warmup=5, learning_rate=1e-2,
        stages=(Stage(0.5, (64,)), Stage(1.0, (128, 64))),
        evaluation_context=64, evaluation_rows=3, sample_tokens=5, periods=(8, 32), needles=2, depths=2,
        beyond=200, compile=False,
    )  # fmt: skip
    Run(shape, short, prepared, folder, torch.device("cpu"), time.monotonic(), folder / "state.pt").all()
    return folder


def test_a_run_learns_and_reports_what_it_learned(trained):
    with (trained / "losses.csv").open() as file:
        losses = [float(row["validation"]) for row in csv.DictReader(file)]
    assert losses[-1] < losses[0] - 1
    report = json.loads((trained / "evaluation.json").read_text())
    assert report["loss"]["validation"] == pytest.approx(losses[-1], abs=0.05)
    assert np.array(report["heads"]["previous"]).shape == (2, 2)
    assert [seen["period"] for seen in report["repetition"]] == [8, 32]
    assert np.array(report["repetition"][0]["induction"]).shape == (2, 2)
    assert report["run"]["steps"] == 30
    assert report["run"]["tokens"] == 256 * (15 + 2 * 15)
    assert (report["long"][-1]["to"], report["beyond"][-1]["to"]) == (128, 200)
    assert [found["tokens"] for found in report["needles"]] == [128, 64]


def test_a_stopped_run_goes_on_where_it_was(trained, prepared, tmp_path):
    from training.train import Run

    shape = Shape(
        width=32, layers=2, heads=2, kv_heads=1, head_dim=16, hidden=32, every=2, window=9, context=128
    )
    given = {"tokens": 256, "stages": (Stage(1.0, (64,)),), "evaluation_context": 64, "evaluation_rows": 1}
    settings = Settings(minutes=1, steps=32, compile=False, **given)
    run = Run(
        shape, settings, prepared, tmp_path, torch.device("cpu"), time.monotonic(), trained / "state.pt"
    )
    run.resume()
    assert (run.step, len(run.losses) > 1) == (30, True)
    saved = torch.load(trained / "state.pt", weights_only=True)
    assert all(torch.equal(x, saved["model"][name]) for name, x in run.model.state_dict().items())
    momentum = [state["momentum"] for state in run.optimizers[0].state.values()]
    assert [bool(x.abs().sum() > 0) for x in momentum] == [True] * len(run.optimizers[0].param_groups)
    run.state = tmp_path / "state.pt"
    run.train()
    assert run.step == 32


def test_a_run_leaves_weights_config_losses_and_a_report(trained):
    names = {"config.json", "evaluation.json", "losses.csv", "model.safetensors", "state.pt"}
    assert names <= {path.name for path in trained.iterdir()} <= names | {"loss.png"}


def test_a_run_stops_when_its_time_is_spent(prepared, tmp_path):
    from training.train import Run

    shape = Shape(width=16, layers=1, heads=2, kv_heads=1, head_dim=8, hidden=16, context=64)
    short = Settings(
        minutes=2 / 60, tokens=128, stages=(Stage(1.0, (64,)),), evaluation_context=64, evaluation_rows=1,
        sample_tokens=1, compile=False,
    )  # fmt: skip
    run = Run(shape, short, prepared, tmp_path, torch.device("cpu"), time.monotonic())
    run.train()
    assert run.trained >= 2
    assert (tmp_path / "model.safetensors").exists()


def test_installing_a_run_gives_a_model_that_loads_and_a_card_without_gaps(trained, prepared, tmp_path):
    transformers = pytest.importorskip("transformers")
    from training.install import install

    install(trained, prepared, tmp_path / "data", tmp_path / "results")
    transformers.SmolLM3ForCausalLM.from_pretrained(tmp_path / "data", local_files_only=True)
    card = (tmp_path / "data" / "MODEL_CARD.md").read_text(encoding="utf-8")
    report = json.loads((tmp_path / "results" / "evaluation.json").read_text())
    assert "$" not in card
    assert f"| **this model** | {report['loss']['validation']:.3f} |" in card
    assert re.findall(r"^\| (\d+) \| \d+\.\d\d \| \d+\.\d\d\d \| layer", card, re.MULTILINE) == ["8", "32"]
    assert "No head has half its weight there at periods of 8, 32 tokens: induction fails." in card
    assert (tmp_path / "results" / "losses.csv").exists()
