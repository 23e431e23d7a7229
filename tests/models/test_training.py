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
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
pytest.importorskip("training", reason="the training program is in the repository, not in the package")

from training.corpus import clean, hold_out, plain, read_books  # noqa: E402
from training.evaluate import (  # noqa: E402
    attention_weights,
    continuations,
    head_scores,
    repetition,
    validation_loss,
)
from training.export import round_to_bfloat16, save_model  # noqa: E402
from training.llama import Llama, Shape  # noqa: E402
from training.ngrams import NGramModel  # noqa: E402
from training.rows import Rows, whole  # noqa: E402
from training.settings import Settings  # noqa: E402
from training.tokens import load_tokens, save_tokens  # noqa: E402

SMALL = Shape(vocabulary=65, width=24, layers=3, heads=6, kv_heads=2, hidden=40, context=63)


MODULES = sorted(path.stem for path in (ROOT / "training").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"training.{name}")).failed == 0


def small_model(seed: int = 0) -> Llama:
    torch.manual_seed(seed)
    model = Llama(SMALL).eval()
    with torch.no_grad():
        # Weights large enough that maps are far from uniform, gains that are not all 1.
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3 + (weight.ndim == 1))
    return model


def transformers_twin(model: Llama):
    transformers = pytest.importorskip("transformers")
    twin = transformers.LlamaForCausalLM(transformers.LlamaConfig(**model.shape.to_config())).float().eval()
    missing, unexpected = twin.load_state_dict(model.state_dict(), strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    twin.tie_weights()
    return twin


@pytest.mark.parametrize("length", [1, 2, 63])
def test_the_plain_llama_and_transformers_give_the_same_logits(length):
    model = small_model()
    ids = torch.randint(65, (2, length), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), transformers_twin(model)(ids).logits, atol=1e-5, rtol=1e-5)


def test_the_bundled_shape_and_transformers_give_the_same_logits_to_the_last_position():
    torch.manual_seed(0)
    model = Llama(Shape(layers=2)).eval()
    ids = torch.randint(4096, (1, 2048))
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


def test_the_bundled_shape_fits_twelve_megabytes_in_bfloat16():
    with torch.device("meta"):
        count = sum(p.numel() for p in Llama(Shape()).parameters())
    assert count == Shape().parameters
    assert 2 * count < 11_700_000


def test_saved_weights_load_into_transformers_with_the_same_logits(tmp_path):
    transformers = pytest.importorskip("transformers")
    model = small_model()
    round_to_bfloat16(model)
    assert save_model(model, tmp_path).name == "model.safetensors"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(65, (1, 63))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), loaded(ids).logits, atol=1e-5, rtol=1e-5)


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=200))
@settings(max_examples=10, deadline=None)
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


def rows_of(tokens: torch.Tensor, **options) -> Rows:
    return Rows(tokens, 9, **({"batch": 4, "context": 65, "repeated": 0, "vocabulary": 65} | options))


def test_an_epoch_begins_rows_with_paragraphs_and_covers_the_text():
    tokens = torch.arange(10, 2010) % 50 + 10
    tokens[9::10] = 9
    rows = rows_of(tokens, batch=1)
    seen = set()
    for ids, targets in rows:
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
    ids, targets = next(iter(rows_of(tokens, repeated=2)))
    periodic = [any(torch.equal(row[:-p], row[p:]) for p in range(16, 33)) for row in targets]
    assert periodic == [False, False, True, True]
    assert torch.equal(ids[:, 1:], targets[:, :-1])
    assert targets.min() > 0


def test_short_segments_are_repeated_as_often_as_long_ones(monkeypatch):
    drawn = []
    monkeypatch.setattr("training.rows.tiled", lambda rows, lengths: drawn.append(lengths) or rows)
    next(iter(rows_of(torch.full((5000,), 10), batch=999, repeated=999, context=2048)))
    (lengths,) = drawn
    assert 16 <= lengths.min() < 20
    assert 950 < lengths.max() <= 1000
    assert 0.4 < (lengths < 126).float().mean() < 0.6


def test_the_same_seed_draws_the_same_rows():
    tokens = torch.randint(9, 65, (5000,), generator=torch.Generator().manual_seed(0))
    batches = [iter(rows_of(tokens, repeated=1, seed=seed)) for seed in (3, 3, 4)]
    first, again, other = ([next(batch)[0] for _ in range(3)] for batch in batches)
    assert torch.equal(torch.stack(first), torch.stack(again))
    assert not torch.equal(torch.stack(first), torch.stack(other))


@given(st.integers(1, 40), st.integers(1, 17))
@settings(max_examples=30, deadline=None)
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
    shape = Shape(vocabulary=60_000, width=24, heads=6, kv_heads=2, layers=1, hidden=8, context=32)
    scores = head_scores(Llama(shape), torch.arange(64).view(2, 32))
    assert scores["previous"][0] == [1.0] * 6
    assert scores["sink"][2] == [1.0] * 6
    for period in (10, 16):
        induction = repetition(Llama(shape), period, 2, torch.device("cpu"))["induction"]
        assert induction == [[0.0] * 6, [1.0] * 6, [0.0] * 6]


def test_an_untrained_model_gains_nothing_from_repetition():
    torch.manual_seed(0)
    seen = repetition(Llama(SMALL).eval(), 31, 4, torch.device("cpu"))
    assert seen["first"] == pytest.approx(np.log(65), abs=0.1)
    assert seen["second"] == pytest.approx(seen["first"], abs=0.1)


def test_sampling_with_a_seed_repeats_itself_and_keeps_the_prompt():
    prompts = torch.tensor([[0, 5], [0, 6]])
    once, again = (continuations(small_model(), prompts, 70, seed=2) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == (2, 72)
    assert torch.equal(once[:, :2], prompts)


@given(st.integers(0, 1000), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_the_learning_rate_stays_between_zero_and_its_peak(step, elapsed):
    assert 0 <= Settings().rate(step, elapsed) <= Settings().learning_rate


def test_a_run_of_so_many_steps_ends_annealed():
    assert Settings(steps=100, warmup=10).rate(100, 0.1) == 0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    pytest.importorskip("tokenizers")
    from training.prepare import prepare

    folder = tmp_path_factory.mktemp("data")
    for name, seed in (("a", 1), ("b", 2)):
        (folder / f"{name}.txt.xz").write_bytes(lzma.compress("\n\n\n".join(stories(60, seed)).encode()))
    prepare(sorted(folder.glob("*.txt.xz")), folder, held_out=0.1)
    return folder


def test_prepared_tokens_are_the_books(prepared):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    facts = json.loads((prepared / "baselines.json").read_text())
    books = [book for name in "ab" for book in read_books(prepared / f"{name}.txt.xz")]
    found = []
    for name in ("train", "validation"):
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
    shape = Shape(width=32, layers=2, heads=2, kv_heads=1, hidden=32, context=64)
    short = Settings(
        minutes=1, steps=30, batch=4, repeated=2, context=64, warmup=5, learning_rate=1e-2,
        evaluation_rows=3, sample_tokens=5, periods=(8, 32), compile=False,
    )  # fmt: skip
    Run(shape, short, prepared, folder, torch.device("cpu"), time.monotonic()).all()
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


def test_a_run_leaves_weights_config_losses_and_a_report(trained):
    names = {"config.json", "evaluation.json", "losses.csv", "model.safetensors"}
    assert names <= {path.name for path in trained.iterdir()} <= names | {"loss.png"}


def test_a_run_stops_when_its_time_is_spent(prepared, tmp_path):
    from training.train import Run

    shape = Shape(width=16, layers=1, heads=2, kv_heads=1, hidden=16, context=64)
    short = Settings(
        minutes=2 / 60, batch=2, repeated=1, context=64, evaluation_rows=1, sample_tokens=1, compile=False
    )
    run = Run(shape, short, prepared, tmp_path, torch.device("cpu"), time.monotonic())
    run.train()
    assert 2 <= run.elapsed() < 20
    assert (tmp_path / "model.safetensors").exists()


def test_installing_a_run_gives_a_model_that_loads_and_a_card_without_gaps(trained, prepared, tmp_path):
    transformers = pytest.importorskip("transformers")
    from training.install import install

    install(trained, prepared, tmp_path / "data", tmp_path / "results")
    transformers.LlamaForCausalLM.from_pretrained(tmp_path / "data", local_files_only=True)
    card = (tmp_path / "data" / "MODEL_CARD.md").read_text(encoding="utf-8")
    report = json.loads((tmp_path / "results" / "evaluation.json").read_text())
    assert "$" not in card
    assert f"| **this model** | {report['loss']['validation']:.3f} |" in card
    assert re.findall(r"^\| (\d+) \| \d+\.\d\d \| \d+\.\d\d \| layer", card, re.MULTILINE) == ["8", "32"]
    assert "No head has half its weight there at periods of 8, 32 tokens: induction fails." in card
    assert (tmp_path / "results" / "losses.csv").exists()
