"""Claims that set attention against recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.training import right, train
from regard.claims.words import number, percent, slope
from regard.engine import attention
from regard.masks import Causal
from regard.nn import MultiHeadAttention

__all__ = ["CLAIMS", "ByAttention", "ByState", "attending", "recurrent"]

DIM = 32
SYMBOLS = 8
TRAINED = 32
Reader = Callable[[Tensor], Tensor]


def attending(seed: int = 0) -> Reader:
    """One random layer of causal attention."""
    torch.manual_seed(seed)
    layer = MultiHeadAttention(DIM, 4).double()
    return lambda x: layer(x, mask=Causal())


def recurrent(seed: int = 0) -> Reader:
    """One random recurrent layer: a GRU as PyTorch draws it."""
    torch.manual_seed(seed)
    layer = nn.GRU(DIM, DIM, batch_first=True).double()
    return lambda x: layer(x)[0]


class _Recall(nn.Module):
    """A recurrent network that has to name the first symbol of a text when it has read all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(SYMBOLS, DIM), nn.GRU(DIM, DIM, batch_first=True)
        self.out = nn.Linear(DIM, SYMBOLS)
        # The gate that keeps a state starts nearly closed, as is usual where memory must be long.
        with torch.no_grad():
            cast("Tensor", self.read.bias_hh_l0)[DIM : 2 * DIM] = 3.0

    def forward(self, symbols: Tensor) -> Tensor:
        return self.out(self.read(self.embed(symbols))[0][:, -1:])


def remembering(length: int, steps: int) -> tuple[Reader, float]:
    """A recurrent layer trained to keep the first of so many symbols, and how often it names it rightly."""
    torch.manual_seed(0)
    model = _Recall()

    def batch(size: int) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(SYMBOLS, (size, length))
        return symbols, symbols[:, :1]

    train(model, batch, steps, size=32, rate=1e-2)
    share = right(model, batch)
    model.double()
    return (lambda x: model.out(model.read(x)[0])), share


def _reach(reader: Reader, n: int, texts: int) -> Tensor:
    """The mean size of the gradient from each token to the last output, nearest first."""
    x = torch.randn(texts, n, DIM, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(reader(x)[:, -1].sum(), x)
    return gradient.norm(dim=-1).mean(0).flip(0)


def measure_hop(
    reader: Callable[[], Reader] = attending,
    length: int = 256,
    lengths: Sequence[int] = (32, 64, 128, 256, 512),
    steps: int = 250,
) -> Measurement:
    """Gradients by distance within one text, and of the farthest token as texts grow."""
    one, other = reader(), recurrent()
    near, recurring = _reach(one, length, 32), _reach(other, length, 32)
    trained, remembers = remembering(TRAINED, steps)
    learnt = {n: _reach(trained, n, 32) for n in (TRAINED, length)}
    far = [_reach(one, n, 32)[-8:].mean().item() for n in lengths]
    places = [d for d in range(1, length) if d < 16 or d % 8 == 0]
    shown = [d for d in places if recurring[d] > 1e-12]  # below, only the axis would grow
    lines = {
        "attention": (places, near[places].tolist()),
        "GRU, untrained": (shown, recurring[shown].tolist()),
        "GRU, trained to remember": (places, learnt[length][places].clamp(min=1e-12).tolist()),
    }
    # Means over eight tokens at either end: single tokens scatter.
    return Measurement(
        {
            "length": length,
            "far_by_near": (near[-8:].mean() / near[1:9].mean()).item(),
            "far_by_near_untrained_gru": (recurring[-8:].mean() / recurring[1:9].mean()).item(),
            "trained_on": TRAINED,
            "trained_gru_names_the_first": remembers,
            "far_by_near_trained_gru": (learnt[TRAINED][-4:].mean() / learnt[TRAINED][1:5].mean()).item(),
            "far_by_near_trained_gru_beyond": (
                learnt[length][-8:].mean() / learnt[length][1:9].mean()
            ).item(),
            "exponent_with_length": slope(lengths, far),
            "far_at_the_longest": far[-1],
            "far_at_the_shortest": far[0],
            "lengths": list(lengths),
        },
        Curves(lines, "distance", "gradient to the last output", log="y"),
    )


def judge_hop(m: Measurement) -> Verdict:
    ours, beyond = m["far_by_near"], m["far_by_near_trained_gru_beyond"]
    if ours < 0.5:
        return Verdict.folklore(
            f"over {m['length']} tokens the gradient falls to {number(ours)} of what it is nearby"
        )
    found = (
        f"in one layer the farthest of {m['length']} tokens has {percent(ours)} of the gradient that near "
        f"ones have; a GRU trained to name the first of {m['trained_on']} symbols "
        f"({percent(m['trained_gru_names_the_first'])} right) has "
        f"{number(m['far_by_near_trained_gru'], 2)} times at "
        f"that length and {number(beyond, 2)} times at {m['length']}, an untrained one "
        f"{number(m['far_by_near_untrained_gru'], 2)} times"
    )
    if m["exponent_with_length"] < -0.5:
        return Verdict.conditional(
            f"{found}; but weights add up to one, so that in longer texts every token has less: untrained, "
            f"the gradient goes as n^{m['exponent_with_length']:.2f} from {m['lengths'][0]} to "
            f"{m['lengths'][-1]} tokens"
        )
    return Verdict.holds(found)


class ByState(nn.Module):
    """Reads all symbols into one state, and writes them down from it."""

    def __init__(self, state: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 16)
        self.read = nn.GRU(16, state, batch_first=True)
        self.write = nn.GRU(16, state, batch_first=True)
        self.start = nn.Parameter(torch.randn(1, 1, 16))
        self.out = nn.Linear(state, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        _, state = self.read(self.embed(symbols))
        written, _ = self.write(self.start.expand(*symbols.shape, -1), state)
        return self.out(written)


class ByAttention(nn.Module):
    """Looks every symbol up where it stands."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, 32)
        self.asked, self.placed = (nn.Parameter(torch.randn(longest, 32)) for _ in range(2))
        self.out = nn.Linear(32, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        n = symbols.shape[1]
        keys = self.placed[None, :n].expand(len(symbols), -1, -1)
        asked = self.asked[None, :n].expand(len(symbols), -1, -1)
        return self.out(attention(asked, keys, self.embed(symbols)))


def _copied(make: Callable[[], nn.Module], n: int, steps: int) -> float:
    """The share of n random symbols that a model copies rightly, once trained."""

    def batch(size: int) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(SYMBOLS, (size, n))
        return symbols, symbols

    torch.manual_seed(0)
    copier = make()
    train(copier, batch, steps, size=32, rate=1e-2)
    return right(copier, batch, 256)


def measure_bottleneck(
    model: Callable[[int], nn.Module] = ByState,
    states: Sequence[int] = (16, 64),
    lengths: Sequence[int] = (2, 8, 16),
    steps: int = 150,
    patience: int = 3,
) -> Measurement:
    """Copy n random symbols: through one state of fixed size, and by looking at them."""
    makers: dict[str, Callable[[], nn.Module]] = {f"state of {size}": partial(model, size) for size in states}
    *_, largest = makers
    makers["attention"] = partial(ByAttention, max(lengths))
    found = {name: {str(n): _copied(make, n, steps) for n in lengths} for name, make in makers.items()}
    patient = _copied(makers[largest], lengths[-2], patience * steps)
    lines = {name: (list(lengths), list(by.values())) for name, by in found.items()}
    return Measurement(
        {
            "steps": steps,
            "chance": 1 / SYMBOLS,
            "right": found,
            "patience": patience,
            "patient_length": lengths[-2],
            "right_with_patience": patient,
        },
        Curves(lines, "symbols to copy", "share copied rightly"),
    )


def judge_bottleneck(m: Measurement) -> Verdict:
    states = {name: by for name, by in m["right"].items() if name != "attention"}
    shortest, *_, longest = m["right"]["attention"]
    ours = m["right"]["attention"][longest]
    worst, *_, best = states
    said = (
        f"after {m['steps']} steps a {worst} copies {percent(states[worst][shortest])} of {shortest} symbols "
        f"and {percent(states[worst][longest])} of {longest}, a {best} {percent(states[best][longest])} of "
        f"{longest}, and attention {percent(ours)} (chance is {percent(m['chance'])})"
    )
    if ours < 0.95 or states[worst][shortest] - states[worst][longest] < 0.25:
        return Verdict.folklore(said)
    before, after = states[best][str(m["patient_length"])], m["right_with_patience"]
    if after > before + 0.1:
        return Verdict.conditional(
            f"{said}; but how narrow it is depends on the size of the state and on training: {m['patience']} "
            f"times as many steps bring the {best} from {percent(before)} to {percent(after)} of "
            f"{m['patient_length']} symbols"
        )
    return Verdict.holds(said)


CLAIMS = (
    Claim(
        "one-hop",
        "Any two tokens are one step apart, and what passes between them does not decay with distance.",
        "The gradient from every token to the last output: one attention layer, and a GRU trained to "
        "remember.",
        measure_hop,
        judge_hop,
    ),
    Claim(
        "rnn-bottleneck",
        "The state of a recurrent network is a bottleneck; attention has none.",
        "A copy task of growing length, trained through states of two sizes and through attention.",
        measure_bottleneck,
        judge_bottleneck,
    ),
)
