"""Checks that the same call gives the same output."""

from __future__ import annotations

import torch

from regard.doctor.case import Case
from regard.doctor.influence import difference

__all__ = ["repeatable"]


def repeatable(case: Case) -> None:
    """Call it with equal and with different seeds: dropout depends on the seed, other randomness doesn't."""
    state = case.subject.sample()
    with torch.random.fork_rng(devices=[]):
        outs = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            outs.append(case.subject.run(state))
    same, other = difference(outs[0], outs[1]), difference(outs[0], outs[2])
    if same > 1e-6:
        case.find("non-determinism", f"two calls with the same input and the same seed differ by {same:.1%}")
    elif other > 1e-6:
        case.find(
            "dropout-in-eval",
            f"in evaluation, two calls with the same input and other seeds differ by {other:.1%}",
        )
