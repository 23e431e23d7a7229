"""Claims about attention between two sequences, and about how a pair is scored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Grid
from regard.claims.timing import Clock, machine, medians
from regard.claims.training import right, train
from regard.claims.words import listed, number, percent
from regard.engine import attention
from regard.nn import Bahdanau, Luong, MultiHeadAttention
from regard.scores import Additive

__all__ = ["CLAIMS"]

WORDS, SOURCE, TARGET = 20, 10, 6


def _aligned(size: int) -> tuple[Tensor, Tensor]:
    """A source of words and their translations, and a target that asks for some of the words.

    Inputs are (batch, source + target, 2): words and translations, then what is asked; classes the answers.
    """
    words = torch.rand(size, WORDS).argsort(-1)[:, :SOURCE]
    meaning = torch.randint(WORDS, (size, SOURCE))
    at = torch.rand(size, SOURCE).argsort(-1)[:, :TARGET]
    asked = words.gather(1, at)
    source = torch.stack([words, meaning], -1)
    target = torch.stack([asked, at], -1)
    return torch.cat([source, target], 1), meaning.gather(1, at)


class _Translator(nn.Module):
    """Queries from the target; keys and values from the source, or from the target itself."""

    def __init__(self, across: bool, dim: int = 32) -> None:
        super().__init__()
        self.across = across
        self.words, self.meanings = nn.Embedding(WORDS, dim), nn.Embedding(WORDS, dim)
        self.layer = MultiHeadAttention(dim, 1)
        self.out = nn.Linear(dim, WORDS)

    def parts(self, given: Tensor) -> tuple[Tensor, Tensor]:
        source, target = given[:, :SOURCE], given[:, SOURCE:]
        asked = self.words(target[..., 0])
        return asked, self.words(source[..., 0]) + self.meanings(source[..., 1]) if self.across else asked

    def forward(self, given: Tensor) -> Tensor:
        return self.out(self.layer(*self.parts(given)))


def measure_cross(across: bool = True, steps: int = 300) -> Measurement:
    """Train a target to look words up in a source, and see where it looks."""
    model = _Translator(across)
    train(model, _aligned, steps, rate=1e-2)
    given, _ = _aligned(256)
    with torch.no_grad():
        out, seen = model.layer.observe(*model.parts(given), stats=())
    weights = seen.map.dense()[:, 0]
    hit = (weights.argmax(-1) == given[:, SOURCE:, 1]).double().mean().item()
    return Measurement(
        {
            "source": SOURCE,
            "target": TARGET,
            "rows_of_the_map": weights.shape[1],
            "columns_of_the_map": weights.shape[2],
            "outputs": out.shape[1],
            "right": right(model, _aligned),
            "chance": 1 / WORDS,
            "looks_at_its_word": hit,
            "looks_by_chance": 1 / SOURCE,
        },
        Grid(weights[0].tolist(), "target", "source" if across else "target", annotate=True, limit=1.0),
    )


def judge_cross(m: Measurement) -> Verdict:
    shape = f"{m['rows_of_the_map']} × {m['columns_of_the_map']}"
    found = (
        f"{m['target']} queries against a source of {m['source']} make a map of {shape} and {m['outputs']} "
        f"outputs; trained, {percent(m['looks_at_its_word'])} of queries look hardest at their own word "
        f"(chance {percent(m['looks_by_chance'])}) and {percent(m['right'])} of answers are right"
    )
    right_shape = (m["rows_of_the_map"], m["columns_of_the_map"]) == (m["target"], m["source"])
    if not right_shape or m["looks_at_its_word"] < 2 * m["looks_by_chance"]:
        return Verdict.folklore(found)
    if m["looks_at_its_word"] < 0.9:
        return Verdict.conditional(found)
    return Verdict.holds(found)


class _Reader(nn.Module):
    """Looks a word up in a source with one of the classic scores, at a given width."""

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.words, self.meanings = nn.Embedding(WORDS, dim), nn.Embedding(WORDS, dim)
        self.ask = nn.Linear(dim, dim)
        self.look = Bahdanau(dim, dim, hidden=dim) if kind == "additive" else Luong(dim, dim, score="dot")
        self.out = nn.Linear(dim, WORDS)

    def forward(self, given: Tensor) -> Tensor:
        source, target = given[:, :SOURCE], given[:, SOURCE:]
        memory = self.words(source[..., 0]) + self.meanings(source[..., 1])
        return self.out(self.look(self.ask(self.words(target[..., 0])), memory))


def measure_additive(dims: Sequence[int] = (8, 16), steps: int = 300, clock: Clock = medians) -> Measurement:
    """The same lookup trained with both scores at small widths; then the time of each."""
    accuracy: dict[str, dict[str, float]] = {kind: {} for kind in ("additive", "dot")}
    for kind in accuracy:
        for dim in dims:
            torch.manual_seed(0)
            model = _Reader(kind, dim)
            train(model, _aligned, steps, rate=2e-2)
            accuracy[kind][str(dim)] = right(model, _aligned)
    q, k, v = torch.randn(3, 1, 1, 256, 64).unbind()
    additive = Additive(torch.randn(64, 64), torch.randn(64, 64), torch.randn(64))
    tasks = {
        "additive": partial(attention, q, k, v, score=additive, backend="torch"),
        "dot": partial(attention, q, k, v, backend="torch"),
    }
    with torch.no_grad():
        seconds = clock(tasks)
    return Measurement(
        {
            "right": accuracy,
            "largest_difference": max(
                abs(accuracy["additive"][d] - accuracy["dot"][d]) for d in accuracy["dot"]
            ),
            "times_slower": seconds["additive"] / seconds["dot"],
            "machine": machine(),
        },
        Bars(
            [f"d = {dim}" for dim in dims],
            {kind: list(by.values()) for kind, by in accuracy.items()},
            "share answered rightly",
            level=1 / WORDS,
        ),
    )


def judge_additive(m: Measurement) -> Verdict:
    said = listed(
        f"{percent(m['right']['additive'][d])} and {percent(share)} at d = {d}"
        for d, share in m["right"]["dot"].items()
    )
    found = (
        f"additive and dot-product scores answer {said}; additive ones take {number(m['times_slower'])} "
        f"times as long at 256 tokens and d = 64, on this machine ({m['machine']})"
    )
    learnt = min(share for by in m["right"].values() for share in by.values())
    alike, faster = m["largest_difference"] < 0.1 and learnt > 0.5, m["times_slower"] > 1
    if alike and faster:
        return Verdict.holds(found)
    if alike or faster:
        return Verdict.conditional(f"only the {'first' if alike else 'second'} half: {found}")
    return Verdict.folklore(found)


CLAIMS = (
    Claim(
        "cross-attention",
        "In cross-attention queries come from one sequence, keys and values from another.",
        "Shapes of the map and the output, and a small alignment task: where each query looks.",
        measure_cross,
        judge_cross,
    ),
    Claim(
        "additive-vs-dot",
        "Additive and dot-product scores behave alike for small d, and the dot product is faster.",
        "One lookup task trained with both at two small widths; and seconds, on the machine at hand.",
        measure_additive,
        judge_additive,
    ),
)
