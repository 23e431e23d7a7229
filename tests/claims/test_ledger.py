"""The ledger as a whole: which claims it has, and how it measures them."""

from __future__ import annotations

import json

import pytest
import torch

import regard
from regard.claims import CLAIMS, Kind, find, run, subjects
from regard.claims.ledger import GROUPS
from regard.errors import RegardError
from regard.models import bundled

# fmt: off
IDS = [
    "scale-std", "scale-64", "scale-saturates", "scale-training", "softmax-budget",
    "softmax-maxent", "temperature", "row-prints", "mask-inf", "mask-after", "causal-future",
    "padding-leak", "order-blind", "rope-relative", "one-hop", "heads-same-budget", "w_o-needed",
    "only-attention-mixes", "quadratic", "flash-exact", "flash-linear", "flash-asymptotic",
    "flash-faster", "window-linear", "sparse-blocks-paths", "gqa-saves", "irope-saves",
    "maverick-params", "sinks", "lost-in-middle", "power-law", "diagonal", "heads-specialise",
    "pruning-not-free", "one-map-is-little", "weights-explain", "weights-probabilities",
    "deterministic", "rnn-bottleneck", "cross-attention", "additive-vs-dot", "saturates-64",
    "logits-8-sigma", "dots-512", "drift-fp16", "tied-qk", "similarity", "each-token", "two-vectors",
    "loop-over-heads", "needle-length", "cheating", "brackets", "maxent-rotary", "rnn-serial",
    "sparse-asymptotic", "tiles-memory",
]
# fmt: on


def test_the_ledger_has_every_claim_once():
    assert sorted(CLAIMS) == sorted(IDS)
    assert sum(map(len, GROUPS.values())) == len(IDS)


def test_every_claim_says_what_it_claims_and_how_it_is_measured():
    for claim in CLAIMS.values():
        assert claim.statement.endswith(".")
        assert claim.how.endswith(".")
    assert len({claim.statement for claim in CLAIMS.values()}) == len(IDS)


def test_claims_run_in_the_order_asked_and_each_once():
    told = []
    entries = run(
        ["gqa-saves", "scale-64", "gqa-saves"], progress=lambda done, total: told.append((done, total))
    )
    assert [entry.claim.id for entry in entries] == ["gqa-saves", "scale-64"]
    assert told == [(1, 2), (2, 2)]
    assert all(entry.verdict.kind in Kind and entry.seconds >= 0 for entry in entries)


def test_an_unknown_claim_is_refused_with_the_nearest():
    with pytest.raises(RegardError) as refused:
        find("sink")
    assert str(refused.value).startswith("there is no claim 'sink'; the ledger has 57. Did you mean sinks")
    assert str(refused.value).endswith("List them with: regard claims --list")
    with pytest.raises(RegardError, match=r"'zzzz'; the ledger has 57\. List them"):
        run(["scale-64", "zzzz"])


def test_measuring_twice_gives_the_same_numbers():
    for name in ("scale-64", "softmax-maxent", "order-blind", "tied-qk"):
        assert CLAIMS[name].measure().numbers == CLAIMS[name].measure().numbers


def test_measuring_leaves_the_random_numbers_and_threads_of_the_caller_alone():
    before = torch.get_rng_state(), torch.get_num_threads()
    run(["scale-64", "deterministic"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_an_entry_is_plain_data():
    [entry] = run(["mask-inf"])
    data = json.loads(json.dumps(entry.to_dict(), allow_nan=False))
    assert set(data) == {"id", "statement", "how", "verdict", "sentence", "numbers", "seconds"}
    assert data["verdict"] == "holds with a condition"
    assert data["numbers"]["leak_infinite"]["float32"] == 0


def test_the_ledger_can_be_had_from_the_root():
    assert regard.claims.find("sinks") is CLAIMS["sinks"]


def test_claims_about_a_model_are_measured_on_the_one_given():
    model, tokenizer = bundled()
    entries = run(["two-vectors"], model=(model, tokenizer), name="another model")
    assert "in another model the last token of 'bank'" in entries[0].verdict.sentence
    [ours] = run(["two-vectors"])
    assert "in the bundled model" in ours.verdict.sentence


def test_what_a_model_cannot_do_leaves_its_other_claims_alone():
    from transformers import GPT2Config, GPT2LMHeadModel

    _, tokenizer = bundled()
    sizes = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 256}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).eval()
    long, sinks = run(["needle-length", "sinks"], model=(model, tokenizer), name="short")
    assert str(long.verdict.kind) == "not measured"
    assert "the model reads at most 256 tokens" in str(long.verdict)
    assert str(sinks.verdict.kind) == "folklore"


def test_claims_that_need_no_model_refuse_one():
    with pytest.raises(RegardError, match=r"scale-64, gqa-saves are not measured on a model; with a model"):
        run(["scale-64", "sinks", "gqa-saves"], model=bundled())


def test_a_text_that_is_too_short_for_a_kind_is_refused_and_not_counted_as_zero(monkeypatch):
    beginning = regard.models.sample_book()[:60]
    monkeypatch.setattr(subjects, "sample_book", lambda: beginning)
    subjects._subject.cache_clear()
    try:
        with pytest.raises(
            RegardError, match=r"the weight on 'self' cannot be measured in layer 0, head 0 over"
        ):
            run(["diagonal"])
    finally:
        subjects._subject.cache_clear()
