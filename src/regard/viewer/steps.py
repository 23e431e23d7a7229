"""The arithmetic of one query of a real head, step by step from the tokens to the next token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import MapError
from regard.maps import AttentionMap
from regard.tracing import lines
from regard.tracing.sums import dot
from regard.viewer.heads import Head
from regard.viewer.plain import number, numbers

__all__ = ["Part", "StepSettings", "head_steps", "step"]

# Keys to show: the heaviest, and the query's neighbours.
HEAVIEST, NEIGHBOURS = 64, 4
# Numbers of a vector to send: all of them for most heads, so that the largest terms of a product are
# included.
NUMBERS = 256
# Queries to show in steps that all tokens compute in parallel.
PARALLEL = 8


@dataclass(frozen=True)
class StepSettings:
    """The query, and modifications of its softmax: a temperature, and omission of 1/√d."""

    query: int
    temperature: float = 1.0
    scaled: bool = True


@dataclass(frozen=True)
class Part:
    """A table of numbers with row and column names, shortened to fit; `shape` is that of the whole table.

    `worked` shows for each cell how it follows from the previous step.
    """

    name: str
    rows: list[str]
    columns: list[str]
    data: Float[Tensor, "rows columns"]
    shape: tuple[int, int] | None = None
    worked: list[list[str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        shape = tuple(self.data.shape) if self.shape is None else self.shape
        return {
            "name": self.name,
            "shape": list(shape),
            "rows": self.rows,
            "columns": self.columns,
            "data": numbers(self.data),
            "worked": self.worked,
        }


def step(name: str, title: str, formula: str, sentence: str, *parts: Part) -> dict[str, Any]:
    """One step as plain data for the page."""
    return {
        "name": name,
        "title": title,
        "formula": formula,
        "sentence": sentence,
        "parts": [part.to_dict() for part in parts],
    }


def head_steps(
    layer: AttentionMap, head: int, settings: StepSettings, tokens: list[str], key_tokens: list[str]
) -> dict[str, Any]:
    """The steps of one query through one head; `tokens` name the queries, `key_tokens` the keys."""
    walk = _Walk(layer, head, settings, tokens, key_tokens)
    return {
        "query": settings.query,
        "token": walk.token,
        "head": head,
        "keys": walk.shown.tolist(),
        "tokens": walk.names,
        "visible": walk.visible,
        "more": walk.visible - int(walk.allowed[walk.shown].sum()),
        "dim": walk.dim,
        "group": layer.problem.group,
        "scale": walk.scale,
        "temperature": settings.temperature,
        "scaled": settings.scaled,
        "entropy": number(float(torch.special.entr(walk.weights).sum())),
        "steps": walk.steps(),
        "next": [],
    }


class _Walk:
    """The numbers of one query, computed once in float64, so that displayed sums are exact."""

    def __init__(
        self,
        layer: AttentionMap,
        head: int,
        settings: StepSettings,
        tokens: list[str],
        key_tokens: list[str],
    ) -> None:
        self.layer, self.number, self.settings = layer, head, settings
        self.head = Head.of(layer, head)
        query = settings.query
        if not 0 <= query < self.head.queries:
            raise MapError(
                f"query {query} is out of range: the map has {self.head.queries} (query 0 to "
                f"{self.head.queries - 1})."
            )
        p = self.head.map.problem
        self.queries, self.key_tokens = tokens, key_tokens
        self.token = tokens[query]
        self.q, self.k, self.v = p.q[0, 0, query].double(), p.k[0, 0], p.v[0, 0]
        self.dim, self.scale = p.q.shape[-1], float(p.scoring.scale)
        self.logits = self._logits()
        self.allowed = self.logits > -math.inf
        self.visible = int(self.allowed.sum())
        self.raw = self.k.double() @ self.q
        self.by = (self.scale if settings.scaled else 1.0) / settings.temperature
        self.sink = None if p.sink is None else float(p.sink) / settings.temperature
        self.weights = self._softmax()
        self.shown = self._chosen()
        self.names = [key_tokens[i] for i in self.shown.tolist()]

    def steps(self) -> list[dict[str, Any]]:
        return [
            self._tokens(),
            self._projections(),
            self._scores(),
            self._scaled(),
            self._masked(),
            self._weights(),
            self._mix(),
            self._parallel(),
            self._heads(),
        ]

    def _logits(self) -> Float[Tensor, " k"]:
        """The input of softmax: bias and soft cap as in the model, scale and temperature as requested."""
        p = self.head.map.problem
        if not self.settings.scaled:
            p = replace(p, scoring=replace(p.scoring, scale=1.0))
        found = AttentionMap(p, self.head.map.lse).scores((0, 0, self.settings.query))
        return found.double() / self.settings.temperature

    def _softmax(self) -> Float[Tensor, " k"]:
        if not self.visible:
            return torch.zeros_like(self.logits)
        if self.sink is None:
            return self.logits.softmax(-1)
        # The sink is one more logit, without a value.
        return torch.cat([self.logits, self.logits.new_tensor([self.sink])]).softmax(-1)[:-1]

    def _chosen(self) -> Int[Tensor, " shown"]:
        """The heaviest keys and the query's neighbours, in the order of the text."""
        position = self.settings.query + self.head.offset
        near = torch.arange(position - NEIGHBOURS, position + NEIGHBOURS + 1)
        near = near[(near >= 0) & (near < len(self.logits))]
        heavy = self.logits.topk(min(HEAVIEST, len(self.logits))).indices
        return torch.cat([near, heavy[self.allowed[heavy]]]).unique()

    def _row(self, name: str, values: Float[Tensor, " k"], worked: list[str] | None = None) -> Part:
        given = values[self.shown][None]
        return Part(name, [self.token], self.names, given, (1, len(values)), [worked] if worked else [])

    def _worked(self, write: Callable[..., str], *steps: Float[Tensor, " k"]) -> list[str]:
        """The result of `write` for each shown key's numbers in some steps."""
        return [write(*cells) for cells in zip(*(x[self.shown].tolist() for x in steps), strict=True)]

    def _tokens(self) -> dict[str, Any]:
        text = (
            f"The query {_quoted(self.token)} stands at place {self.settings.query}; it may look at "
            f"{_count(self.visible, 'key')}, of which {len(self.shown)} are shown here."
        )
        places = Part("position", ["position"], self.names, self.shown.double()[None], (1, len(self.logits)))
        return step("tokens", "Tokens", "", text, places)

    def _projections(self) -> dict[str, Any]:
        text = (
            f"Each token brings three vectors of {self.dim} numbers: the query asks, the key answers, the "
            "value is what is passed on. These are the model's own, as attention gets them: after the "
            "projections, and after positions where the model turns them into q and k."
        )
        group = self.layer.problem.group
        if group > 1:
            text += f" Every {group} query heads share one head of keys and values."
        vectors = (
            _vectors("q", [self.token], self.q[None]),
            _vectors("k", self.names, self.k[self.shown].double()),
            _vectors("v", self.names, self.v[self.shown].double()),
        )
        formula = "q, k = x W_q, x W_k, with positions; v = x W_v"
        return step("projections", "Queries, keys, values", formula, text, *vectors)

    def _scores(self) -> dict[str, Any]:
        text = (
            "The query meets every key: multiply number by number and add up. The more alike the two are, "
            "the larger the score."
        )
        q, keys, raw = self.q.tolist(), self.k[self.shown].tolist(), self.raw[self.shown].tolist()
        worked = [dot(q, k, score) for k, score in zip(keys, raw, strict=True)]
        return step("scores", "Scores", "q kᵀ", text, self._row("scores", self.raw, worked))

    def _scaled(self) -> dict[str, Any]:
        root = False
        if self.settings.scaled:
            root = math.isclose(self.scale * math.sqrt(self.dim), 1, rel_tol=1e-6)
            said = f"Divided by √{self.dim}" if root else f"Times {self.scale:.4g}"
            text = f"{said}, so that scores of long vectors do not drown the softmax."
            formula = f"scores / √{self.dim}" if root else f"scores × {self.scale:.4g}"
        else:
            text = "Without the scale the scores stay as large as they are; see what softmax makes of it."
            formula = "scores"
        if self.settings.temperature != 1:
            text += f" A temperature of {self.settings.temperature:g} divides them once more."
            formula += f" / {self.settings.temperature:g}"
        of = self.dim if root and self.settings.temperature == 1 else None
        values = self.raw * self.by
        worked = self._worked(lambda raw, score: lines.scaled(raw, score, self.by, of), self.raw, values)
        return step("scaled", "Scale", formula, text, self._row("scaled", values, worked))

    def _masked(self) -> dict[str, Any]:
        hidden = len(self.logits) - self.visible
        text = (
            f"{_count(hidden, 'key')} may not be seen: a score of −∞ becomes a weight of exactly 0."
            if hidden
            else "This query may see every key, so the mask changes nothing."
        )
        row = self._row("masked", self.logits, self._worked(lines.masked, self.raw * self.by, self.logits))
        return step("masked", "Mask", "−∞ where hidden", text, row)

    def _weights(self) -> dict[str, Any]:
        top = int(self.weights.argmax())
        share = 100 * float(self.weights[top])
        text = (
            "e to the power of each score, divided by the sum of all: nothing is negative and the row adds "
            f"up to 1. {_quoted(self.key_tokens[top])} at place {top} gets the most, {share:.1f} %."
        )
        row = lines.Softmax(self.logits.tolist(), self.sink)
        weights = self.weights[self.shown].tolist()
        worked = [row.line(key, w) for key, w in zip(self.shown.tolist(), weights, strict=True)]
        part = self._row("weights", self.weights, worked)
        return step("weights", "Softmax", "softmax(masked)", text, part)

    def _mix(self) -> dict[str, Any]:
        v = self.v.double()
        out, norms = self.weights @ v, self.weights * v.norm(dim=-1)
        text = (
            f"The values are mixed in the proportions of the weights: {self.v.shape[-1]} numbers, what this "
            f"head tells {_quoted(self.token)}."
        )
        return step(
            "mix",
            "Mix",
            "weights v",
            text,
            _vectors("values", self.names, v[self.shown]),
            self._row("contributions", norms),
            _vectors("output", [self.token], out[None]),
        )

    def _parallel(self) -> dict[str, Any]:
        query = self.settings.query
        rows = range(max(0, query - PARALLEL + 1), query + 1)
        weights = self.head.map[0, 0, rows, self.shown].double()
        names = [self.queries[i] for i in rows]
        text = (
            "Nothing here waits for anything else: all queries do this at the same time, one row of the map "
            "each. These are the last few, as the model computed them."
        )
        shape = (self.head.queries, self.head.keys)
        return step(
            "parallel",
            "All tokens at once",
            "softmax(Q Kᵀ)",
            text,
            Part("weights", names, self.names, weights, shape),
        )

    def _heads(self) -> dict[str, Any]:
        p, query = self.layer.problem, self.settings.query
        rows = self.layer[0, :, query].double()
        outputs = [row @ p.v[0, i // p.group].double() for i, row in enumerate(rows)]
        norms = torch.stack(outputs).norm(dim=-1)
        share = norms / norms.sum().clamp(min=1e-30)
        heads = [f"head {i}" for i in range(len(norms))]
        width = len(norms) * p.v.shape[-1]
        text = (
            f"{_count(len(norms), 'head')} did the same with other vectors. Their outputs are laid side by "
            f"side, {width} numbers, and one more matrix mixes them."
        )
        part = Part("heads", heads, ["length", "share"], torch.stack([norms, share], 1))
        return step("heads", "Heads together", "concat(heads) W_o", text, part)


def _vectors(name: str, rows: list[str], x: Float[Tensor, "rows dim"]) -> Part:
    kept = min(NUMBERS, x.shape[1])
    return Part(name, rows, [str(i) for i in range(kept)], x[:, :kept], (x.shape[0], x.shape[1]))


def _quoted(token: str) -> str:
    return f"“{token.strip() or token}”"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
