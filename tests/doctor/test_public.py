"""Attention as public repositories write it: one of each kind that was once judged wrongly.

The whole set is a program: `python tests/doctor/public_set.py`.
"""

from __future__ import annotations

import pytest

from doctor.public_set import cases, judged

MENDED = (
    "vision CosineWindowAttention normalised-inside",
    "vision NormedAttention parts-swapped projection-unused",
    "vision TalkingHeadAttention",
    "language CoreAttention",
    "language CoreAttention softmax-axis",
    "language CosSinAttention mask-inverted",
    "language SinkAttention",
    "language GatedAttention",
    "teaching loops",
    "teaching ListOfInputs softmax-axis",
    "teaching MultiHeadedAttention parts-swapped",
    "teaching HeadsInAList parts-swapped projection-unused",
    "research NullKey",
    "research topk_attention",
    "research ManyKeys",
    "research LongWindow",
    "research IdleMask",
    "research OneAtATime",
    "research HeadwiseGate",
    "research AdditiveScores",
    "research LowRankUpdate scale-d-model",
    "research HeadScale scale-after-softmax",
    "research OnlineSoftmax no-softmax",
    "research SetAttention scale-d-model",
)
CASES = {label: (right, thing, options) for label, right, thing, options in cases()}


@pytest.mark.share(4)
@pytest.mark.parametrize("label", MENDED)
def test_public_attention_is_judged_rightly(label):
    verdict, found = judged(*CASES[label])
    assert verdict == "right", str(found)


def test_the_set_is_as_large_as_it_says():
    rights = [right for right, _, _ in CASES.values()]
    assert rights.count("healthy") >= 40
    assert rights.count("not examined") >= 12
    assert sum(right not in ("healthy", "not examined") for right in rights) >= 70


def test_what_is_never_read_and_what_drops_its_mask_is_said():
    notes = {
        label: judged(*CASES[f"research {label}"])[1].notes
        for label in ("IdleMask", "OneAtATime", "LongWindow")
    }
    assert any("mask is never read" in note for note in notes["IdleMask"])
    assert any("it is right for one token at a time" in note for note in notes["OneAtATime"])
    assert "on 256 tokens each query sees 16 tokens to either side" in notes["LongWindow"]


def test_the_example_shows_numbers_that_differ():
    thing = CASES["vision PatchAttention heads-mixed"][1]
    (finding,) = judged("heads-mixed", thing, {})[1].findings
    assert finding.example["expected"] != finding.example["got"]
