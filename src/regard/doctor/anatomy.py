"""Finds the columns of a module's products that are queries, keys and values, by perturbing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from regard.doctor.watch import Product, Watch

__all__ = ["Anatomy", "Column", "Roles", "at_length", "dissect"]

Column = tuple[int, int]
# The most columns per product to test one by one; in wider products, sampled columns and the borders between
# them.
CLOSE = 96
# Columns that fit into one large batch.
MANY = 512
# If the second difference is below this fraction of the first, the response is linear in float32.
STRAIGHT = 2e-3


@dataclass
class Roles:
    """The columns by role."""

    query: list[Column] = field(default_factory=list)
    key: list[Column] = field(default_factory=list)
    value: list[Column] = field(default_factory=list)
    dead: list[Column] = field(default_factory=list)
    # Each multiplies one number of its own token's head outputs.
    gate: list[Column] = field(default_factory=list)

    def add(self, role: str, column: Column) -> None:
        """Add a column to its role."""
        getattr(self, role).append(column)


@dataclass
class Anatomy:
    """The products of one module: projections of single tokens, and products after attention."""

    products: list[Product]
    places: dict[int, Tensor]
    after: list[int]
    roles: Roles
    used: set[str]
    # Products after attention whose rows run over tokens first and sequences second.
    length_first: set[int] = field(default_factory=set)
    # The columns of the head outputs, in the order of the values that they come from.
    order: list[int] | None = None
    # The number of heads, from the columns of the output that each query affects.
    heads: int | None = None

    def value(self, products: list[Product], columns: Sequence[Column]) -> Tensor:
        """The values of some columns in a run, as (batch, length, columns)."""
        parts = []
        for index in dict.fromkeys(index for index, _ in columns):
            mine = [column for i, column in columns if i == index]
            places = self.places[index][..., torch.tensor(mine)]
            parts.append(products[index].value.flatten()[places.flatten()].reshape(places.shape))
        return torch.cat(parts, -1)

    def core(self, products: list[Product], out: Tensor) -> Tensor:
        """The head outputs: the input of the output projection, or the output if there is none."""
        batch, n = out.shape[:2]
        parts = [_rows(products[i].operand, batch, n, i in self.length_first) for i in self.after]
        if not parts or any(part is None for part in parts):
            return out
        core = torch.cat([part for part in parts if part is not None], -1)
        return core if self.order is None else core[..., self.order]

    def change(self, index: int, tokens: Any, columns: Any, size: Any) -> Tensor:
        """A perturbation to add to a product: `size` at some tokens and columns."""
        change = torch.zeros(self.products[index].value.numel())
        places = self.places[index][:, tokens][..., columns]
        change[places.flatten()] = size if not isinstance(size, Tensor) else size.flatten()
        return change


Run = Callable[[Any, dict[int, Tensor]], tuple[Tensor, Watch]]


def dissect(
    run: Run, state: Any, change: Callable[[Any, int, int], Any], n: int, classify: bool = True
) -> Anatomy:
    """Find the projections of a module and their roles."""
    batch = len(state)
    _, base = run(state, {})
    products = base.products
    moved: list[list[Tensor]] = [[] for _ in products]
    rows: list[set[int]] = [set() for _ in products]
    for b in range(batch):
        for j in range(n):
            _, other = run(change(state, b, j), {})
            if len(other.products) != len(products):
                return Anatomy(products, {}, [], Roles(), base.used)
            for index, product in enumerate(other.products):
                before = products[index].value
                moved[index].append((product.value != before).flatten())
                met = _rows(product.operand, batch, n, False), _rows(products[index].operand, batch, n, False)
                if b == 0 and met[0] is not None and met[1] is not None:
                    rows[index] |= set((met[0] != met[1]).flatten(0, 1).any(-1).nonzero()[:, 0].tolist())
    places = {}
    for index, sets in enumerate(moved):
        found = _places(sets, batch, n)
        if found is not None:
            places[index] = found
    after = [i for i in range(len(products)) if i not in places]
    roots: list[int] = []
    for i in after:
        first = not any(j in products[i].parents for j in after)
        # In LoRA, two weights of one output projection have the same input.
        if first and not any(torch.equal(products[i].operand, products[j].operand) for j in roots):
            roots.append(i)
    upstream = {j for i in places for j in products[i].parents} | {i for i in places if products[i].absorbed}
    kept = {index: found for index, found in places.items() if index not in upstream}
    turned = {i for i in roots if batch > 1 and rows[i] == set(range(0, batch * n, batch))}
    anatomy = Anatomy(products, kept, roots, Roles(), base.used, turned)
    if classify:
        _classify(anatomy, run, state, n)
    return anatomy


def _rows(operand: Tensor, batch: int, n: int, length_first: bool) -> Tensor | None:
    """The input of a product as (batch, length, width), where it has a row for each token."""
    if operand.numel() % (batch * n):
        return None
    if operand.dim() == 3 and operand.shape[0] > 1 and operand.shape[1] == batch * n:
        operand = operand.transpose(0, 1)
    if length_first:
        return operand.reshape(n, batch, -1).transpose(0, 1)
    return operand.reshape(batch, n, -1)


def _places(sets: list[Tensor], batch: int, n: int) -> Tensor | None:
    """The indices of each token's numbers in a product, if every number belongs to one token."""
    counts = [int(one.sum()) for one in sets]
    if not counts[0] or len(set(counts)) > 1 or sum(counts) != len(sets[0]):
        return None
    if int(torch.stack(sets).sum(0).max()) > 1:
        return None
    return torch.stack([one.nonzero()[:, 0] for one in sets]).reshape(batch, n, -1)


def _classify(anatomy: Anatomy, run: Run, state: Any, n: int) -> None:
    """Assign roles: queries affect only their own row, keys and values also others; only values act
    linearly."""
    feeds: dict[Column, list[int]] = {}
    width = 0
    for index, places in anatomy.places.items():
        lookup = _in_one_batch(anatomy, run, state, index, n) or _one_by_one(anatomy, run, state, index, n)

        width = lookup(0)[0].shape[-1]

        def role(column: int, index: int = index, lookup: Lookup = lookup) -> str:
            before, up, down = lookup(column)
            found, fed = _role_of(before, up, down, n)
            feeds[index, column] = fed
            return found

        for column, found in enumerate(_scan(role, places.shape[-1])):
            anatomy.roles.add(found, (index, column))
    _gates(anatomy.roles, feeds)
    anatomy.heads = _heads([feeds[column] for column in anatomy.roles.query if column in feeds], width)
    fed = [feeds.get(column, []) for column in anatomy.roles.value]
    flat = [columns[0] for columns in fed if len(columns) == 1]
    if anatomy.after and flat and sorted(flat) == list(range(width)):
        anatomy.order = flat


def _role_of(before: Tensor, up: Tensor, down: Tensor, n: int) -> tuple[str, list[int]]:
    """The role of a column, from the outputs without a perturbation, with one, and with its negative."""
    size = max(float(before.abs().max()), 1e-12)
    step = float((up - before).abs().max())
    if not step > 1e-6 * size:
        return "dead", []
    if float((up + down - 2 * before).abs().max()) < max(STRAIGHT * step, 3e-6 * size):
        lifted = (up - before).abs().flatten(0, 1).amax(0) > 1e-6 * size
        return "value", lifted.nonzero()[:, 0].tolist()
    others = [i for i in range(n) if i != n // 2]
    reach = float((up - before)[:, others].abs().max())
    if reach < 1e-5 * step + 1e-7 * size:
        lifted = (up - before)[:, n // 2]
        moved = lifted.abs().amax(0) > 1e-6 * size
        gate = int(moved.sum()) > 1 and _parallel(lifted[:, moved], before[:, n // 2][:, moved])
        return "gate" if gate else "query", moved.nonzero()[:, 0].tolist()
    return "key", []


def _parallel(change: Tensor, before: Tensor) -> bool:
    """Whether a perturbation only scales the output vectors, as a gate does."""
    along = (change * before).sum(-1, keepdim=True) / before.square().sum(-1, keepdim=True).clamp_min(1e-30)
    return float((change - along * before).abs().max()) < 1e-3 * float(change.abs().max())


def _gates(roles: Roles, feeds: dict[Column, list[int]]) -> None:
    """The columns that affect one number each; queries affect all numbers of their head."""
    alone = [column for column in roles.query if len(feeds.get(column, [])) == 1]
    if len(alone) < len(roles.query):
        roles.gate += alone
        roles.query = [column for column in roles.query if column not in set(alone)]


def _heads(moved: list[list[int]], width: int) -> int | None:
    """The number of heads, if the columns that queries affect form several groups of equal size."""
    groups = {tuple(columns) for columns in moved}
    sizes = {len(columns) for columns in groups}
    return len(groups) if len(sizes) == 1 < len(groups) and sum(map(len, groups)) == width else None


Lookup = Callable[[int], tuple[Tensor, Tensor, Tensor]]


def _one_by_one(anatomy: Anatomy, run: Run, state: Any, index: int, n: int) -> Lookup:
    """Perturb each column in a call of its own."""
    out, seen = run(state, {})
    before = anatomy.core(seen.products, out).nan_to_num(0.0)
    spread = float(anatomy.products[index].value.std()) or 1.0

    def lookup(column: int) -> tuple[Tensor, Tensor, Tensor]:
        moved = []
        for sign in (1.0, -1.0):
            change = anatomy.change(index, [n // 2], [column], sign * spread)
            out, seen = run(state, {index: change})
            moved.append(anatomy.core(seen.products, out).nan_to_num(0.0))
        return before, moved[0], moved[1]

    return lookup


def _in_one_batch(anatomy: Anatomy, run: Run, state: Any, index: int, n: int) -> Lookup | None:
    """Perturb each column in its own sequence of one large batch, if sequences don't affect each other."""
    places = anatomy.places[index]
    count = places.shape[-1]
    many = _more(places, count + 1)
    if many is None or len(state) < 2 or count > MANY:
        return None
    spread = float(anatomy.products[index].value.std()) or 1.0
    alike = state[:1].expand(count + 1, *state.shape[1:]).contiguous()
    moved = []
    for sign in (1.0, -1.0):
        change = torch.zeros(many.numel())
        columns = torch.arange(count)
        change[many[columns + 1, n // 2, columns]] = sign * spread
        try:
            out, seen = run(alike, {index: change})
        except Exception:
            return None
        core = anatomy.core(seen.products, out).nan_to_num(0.0)
        moved.append(core)
    # The first sequence was not perturbed, so its output must not depend on the others.
    out, seen = run(state, {})
    alone = anatomy.core(seen.products, out).nan_to_num(0.0)[:1]
    if float((moved[0][:1] - alone).abs().max()) > 1e-4 * max(float(alone.abs().max()), 1e-12):
        return None
    return lambda column: (moved[0][:1], moved[0][column + 1 : column + 2], moved[1][column + 1 : column + 2])


def _more(places: Tensor, batch: int) -> Tensor | None:
    """The indices of the same numbers in a larger batch, for the known layouts of products."""
    small, n, columns = places.shape
    b, j, c = torch.meshgrid(*(torch.arange(size) for size in places.shape), indexing="ij")
    layouts = (
        lambda b, j, c, size: (b * n + j) * columns + c,
        lambda b, j, c, size: (j * size + b) * columns + c,
        lambda b, j, c, size: (b * columns + c) * n + j,
    )
    for layout in layouts:
        if torch.equal(layout(b, j, c, small), places):
            b, j, c = torch.meshgrid(
                torch.arange(batch), torch.arange(n), torch.arange(columns), indexing="ij"
            )
            return layout(b, j, c, batch)
    return None


def at_length(places: Tensor, n: int) -> Tensor | None:
    """The indices of the same numbers in a call with n tokens, for the known layouts of products."""
    batch, small, columns = places.shape

    def laid(length: int) -> list[Tensor]:
        sizes = (batch, length, columns)
        b, j, c = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
        return [(b * length + j) * columns + c, (j * batch + b) * columns + c, (b * columns + c) * length + j]

    for old, new in zip(laid(small), laid(n), strict=True):
        if torch.equal(old, places):
            return new
    return None


def _scan(role: Callable[[int], str], count: int) -> list[str]:
    """The role of every column; in wide products, columns between two of equal role get that role."""
    if count <= CLOSE:
        return [role(column) for column in range(count)]
    step = count // CLOSE
    marks = [*range(0, count - 1, step), count - 1]
    found = {mark: role(mark) for mark in marks}
    for low, high in pairwise(marks):
        while found[low] != found[high] and high - low > 1:
            middle = (low + high) // 2
            found[middle] = role(middle)
            low, high = (middle, high) if found[middle] == found[low] else (low, middle)
    roles, last = [], found[0]
    for column in range(count):
        last = found.get(column, last)
        roles.append(last)
    return roles
