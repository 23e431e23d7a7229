"""The claim that recurrent networks cannot be parallel: the longest chain of operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.timing import Clock, medians
from regard.claims.words import listed, number, slope

__all__ = ["CLAIMS", "longest_chain"]

DIM = 16
Task = Callable[[Tensor], Tensor]


class _Depths(TorchDispatchMode):
    """Keeps for every tensor how many operations had to be done one after the other to make it."""

    def __init__(self) -> None:
        super().__init__()
        # The tensors are kept, so that no other gets the id of one.
        self.depths: dict[int, tuple[Tensor, int]] = {}

    def of(self, tensor: Tensor) -> int:
        return self.depths.get(id(tensor), (tensor, 0))[1]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        depth = max((self.of(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)), default=0) + 1
        for x in tree_leaves(out):
            if isinstance(x, Tensor):
                self.depths[id(x)] = (x, depth)
        return out


def longest_chain(task: Task, x: Tensor) -> int:
    """How many operations of a task wait for each other, one after the other.

    >>> longest_chain(lambda x: (x + 1) * (x + 2), torch.ones(3))
    2
    """
    with torch.no_grad(), _Depths() as depths:
        return depths.of(task(x))


def attending(x: Tensor) -> Tensor:
    """One layer of causal attention, written out."""
    n = x.shape[0]
    scores = (x @ x.T / math.sqrt(DIM)).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ x


def recurring() -> Task:
    """A recurrent network that is not linear: each state needs the one before it."""
    cell = nn.RNNCell(DIM, DIM)

    def read(x: Tensor) -> Tensor:
        state, states = torch.zeros(1, DIM), []
        for token in x:
            state = cell(token[None], state)
            states.append(state)
        return torch.cat(states)

    return read


def scanned(x: Tensor) -> Tensor:
    """The linear recurrence s = 0.9 s + x by doubling: each round adds states twice as far back."""
    state, decay, shift = x, 0.9, 1
    while shift < len(x):
        moved = torch.cat([torch.zeros(shift, DIM), state[:-shift]])
        state, decay, shift = state + decay * moved, decay * decay, 2 * shift
    return state


def stepped(x: Tensor) -> Tensor:
    """The same linear recurrence, step by step."""
    state, states = torch.zeros(DIM), []
    for token in x:
        state = 0.9 * state + token
        states.append(state)
    return torch.stack(states)


def measure_serial(
    recurrent: Callable[[], Task] = recurring, lengths: Sequence[int] = (16, 64, 256), clock: Clock = medians
) -> Measurement:
    """The longest chain of operations by length, for attention and recurrent networks; and seconds."""
    tasks = {"attention": attending, "recurrent": recurrent(), "linear, by doubling": scanned}
    texts = {n: torch.randn(n, DIM) for n in lengths}
    chains = {name: [longest_chain(task, texts[n]) for n in lengths] for name, task in tasks.items()}
    longest = texts[lengths[-1]]
    with torch.no_grad():
        seconds = clock({name: lambda task=task: task(longest) for name, task in tasks.items()})
    apart = (scanned(longest) - stepped(longest)).abs().max() / stepped(longest).abs().max()
    return Measurement(
        {
            "lengths": list(lengths),
            "longest_chain": chains,
            "exponent": {name: slope(lengths, chain) for name, chain in chains.items()},
            "linear_recurrence_differs_by": apart.item(),
            "seconds_at_the_longest": seconds,
        },
        Curves(
            {name: (list(lengths), chain) for name, chain in chains.items()},
            "tokens",
            "operations in a row",
            log="xy",
        ),
    )


def judge_serial(m: Measurement) -> Verdict:
    chains, last = m["longest_chain"], m["lengths"][-1]
    said = listed(f"{chain[-1]:,} in {name}" for name, chain in chains.items())
    found = f"over {last} tokens so many operations wait for each other: {said}"
    if m["exponent"]["recurrent"] < 0.5:
        return Verdict.folklore(found)
    if m["exponent"]["linear, by doubling"] < 0.5 and m["linear_recurrence_differs_by"] < 1e-4:
        return Verdict.conditional(
            f"{found}; but only where a state is not a linear function of the one before: a linear "
            f"recurrence has "
            f"the same states, to {number(m['linear_recurrence_differs_by'], 2)}, in rounds of doubling"
        )
    return Verdict.holds(found)


CLAIMS = (
    Claim(
        "rnn-serial",
        "Recurrent networks cannot be computed in parallel.",
        "The longest chain of operations that wait for each other, by length: attention and two recurrences.",
        measure_serial,
        judge_serial,
    ),
)
