"""No verdict is an opinion: feed a claim something broken, and it says something else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from claims.broken import BROKEN, MENDED
from claims.documented import verdicts
from regard.claims import CLAIMS, Kind, run

# Decided by a clock, or by how a machine's library rounds: not for a test to judge.
BY_MACHINE = {"flash-faster", "additive-vs-dot", "deterministic", "loop-over-heads"}
# Those that are quick as they are.
QUICK = [
    "scale-64",
    "scale-saturates",
    "logits-8-sigma",
    "tied-qk",
    "similarity",
    "maxent-rotary",
    "rnn-serial",
    "sparse-asymptotic",
    "two-vectors",
    "softmax-budget",
    "softmax-maxent",
    "temperature",
    "row-prints",
    "mask-inf",
    "mask-after",
    "causal-future",
    "padding-leak",
    "order-blind",
    "rope-relative",
    "heads-same-budget",
    "w_o-needed",
    "only-attention-mixes",
    "quadratic",
    "gqa-saves",
    "irope-saves",
    "maverick-params",
    "flash-exact",
    "flash-linear",
    "sparse-blocks-paths",
    "sinks",
    "diagonal",
    "power-law",
    "heads-specialise",
    "one-map-is-little",
    "cross-attention",
]
# These train something, or read all heads of the bundled model.
SECONDS = {"sinks", "scale-training", "rnn-bottleneck", "padding-leak", "heads-specialise"}
SECONDS |= {"pruning-not-free", "power-law", "additive-vs-dot"}


def by_time(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.long) if name in SECONDS else name for name in names]


def test_every_claim_has_a_broken_variant():
    assert sorted(BROKEN) == sorted(CLAIMS)


@pytest.mark.parametrize("name", by_time(BROKEN))
def test_something_broken_gets_another_verdict_than_the_page_has(name):
    variant, expected = BROKEN[name]
    verdict = CLAIMS[name].judge(CLAIMS[name].measure(**variant))
    assert verdict.kind == expected, verdict
    assert name in BY_MACHINE or str(verdict.kind) != verdicts()[name]


@pytest.mark.parametrize("name", MENDED)
def test_a_condition_goes_when_its_cause_goes(name):
    variant, expected = MENDED[name]
    verdict = CLAIMS[name].judge(CLAIMS[name].measure(**variant))
    assert verdict.kind == expected, verdict


@pytest.mark.share(4)
@pytest.mark.parametrize("name", by_time(QUICK))
def test_the_page_says_what_is_measured_here(name):
    [entry] = run([name])
    assert str(entry.verdict.kind) == verdicts()[name], entry.verdict


@pytest.mark.slow
def test_the_page_says_what_is_measured_here_of_every_claim_that_no_machine_decides():
    found = {entry.claim.id: str(entry.verdict.kind) for entry in run()}
    assert {n: k for n, k in found.items() if n not in BY_MACHINE} == {
        n: k for n, k in verdicts().items() if n not in BY_MACHINE
    }


def test_the_sentence_is_made_of_what_was_measured():
    claim = CLAIMS["gqa-saves"]
    assert "1/4, and not 1/5" in claim.judge(claim.measure(kv_heads=10)).sentence
    claim = CLAIMS["scale-64"]
    assert (
        "11.13 for d = 128, and 11.31 is right"
        in claim.judge(claim.measure(**BROKEN["scale-64"][0])).sentence
    )
    claim = CLAIMS["row-prints"]
    assert "6.015 should be 6.017" in claim.judge(claim.measure()).sentence


@pytest.mark.parametrize(
    ("ratios", "kind"),
    [
        ((1.0, 1.5), Kind.FOLKLORE),
        ((2.0, 4.0), Kind.HOLDS),
        ((1.0, 9.0), Kind.CONDITION),
        ((5.0, 9.0), Kind.CONDITION),
    ],
)
def test_the_factor_of_speed_is_judged_by_what_the_clock_says(ratios, kind):
    left = iter(ratios)
    claim = CLAIMS["flash-faster"]
    found = claim.measure(clock=lambda tasks: {"plain": next(left), "fused": 1.0}, lengths=(1, 65))
    verdict = claim.judge(found)
    assert verdict.kind == kind
    assert "on this machine" in verdict.sentence
