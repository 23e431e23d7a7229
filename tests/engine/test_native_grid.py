"""Grids say what pieces say, bit for bit, and what float64 says."""

from __future__ import annotations

import pytest
import torch

from engine.folded import every_statistic, tensors_of, where_kernels_are
from engine.harness import MASKS, every_mask, qkv
from regard import Causal, Decay, Documents, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.native import grid
from regard.engine.native.grid import Grid, Linear, pieces
from regard.engine.native.units import Unit
from regard.masks import Dense, Window
from regard.stats import ColumnMass, Entropy, TopK

pytestmark = where_kernels_are


def in_units(monkeypatch) -> None:
    """Read maps piece by piece from here on."""
    monkeypatch.setattr(grid, "ROOM", 0)


def seen(leaves: dict, mask) -> dict:
    heads, v_dim = leaves["q"].shape[1], leaves["v"].shape[-1]
    asked = every_statistic(leaves["q"].shape[2], leaves["k"].shape[2], heads, v_dim)
    result = observe(**leaves, mask=mask, stats=[s.named(n.replace(" ", "_")) for n, s in asked.items()])
    return {"out": result.out, "lse": result.lse, **result.stats}


@pytest.mark.share(4)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(("q", "k"), [(1, 17), (1, 65), (4, 63), (33, 65), (63, 63)])
def test_a_grid_has_the_bits_of_its_pieces(name, q, k, monkeypatch):
    torch.manual_seed(3)
    mask = every_mask(q, k, 2, 4)[name]
    leaves = qkv(q, k, batch=2, heads=4, kv_heads=2)
    at_once = seen(leaves, mask)
    in_units(monkeypatch)
    for name, one_by_one in seen(leaves, mask).items():
        for x, y in zip(tensors_of(at_once[name]), tensors_of(one_by_one), strict=True):
            assert torch.equal(x, y), name


@pytest.mark.parametrize("room", [grid.ROOM, 5000])
@pytest.mark.parametrize("n", [3, 4, 5])
def test_many_short_maps_in_grids_of_any_size(room, n, monkeypatch):
    monkeypatch.setattr(grid, "ROOM", room)
    torch.manual_seed(4)
    batch, heads = 37, 3
    ids = torch.randint(-1, 2, (batch, n))
    q, k, v = torch.randn(3, batch, heads, n, 16).unbind()
    for mask in (
        Causal(),
        Documents(ids=ids),
        Causal() & Documents(ids=ids.sort(1).values),
        Dense(torch.rand(batch, heads, n, n) < 0.5),
    ):
        got = observe(q, k, v, mask, stats=[Entropy(), ColumnMass(), Decay(), TopK(2)])
        allowed = mask.dense(n).expand(batch, heads, n, n)
        s = (q.double() @ k.double().mT / 4).masked_fill(~allowed, -torch.inf)
        w = s.softmax(-1).nan_to_num(0.0)
        out = w @ v.double()
        assert (got.out - out).abs().max() < 1e-5
        assert (got.entropy - torch.special.entr(w).sum(-1)).abs().max() < 1e-5
        assert (got.column_mass - w.sum(-2)).abs().max() < 1e-5
        assert (got.top_k.weight - w.topk(2).values).abs().max() < 1e-5
        for d in range(n):
            assert (got.decay.count[..., d] == allowed.diagonal(-d, -2, -1).sum(-1)).all()
            mean = w.diagonal(-d, -2, -1).sum(-1) / got.decay.count[..., d].clamp(min=1)
            assert (got.decay.mean[..., d] - mean).abs().max() < 1e-5


def test_which_maps_are_read_in_grids():
    def kinds(mask, batch, n, heads=8):
        q, k, v = torch.zeros(3, batch, heads, n, 8).unbind()
        return {type(piece) for piece in pieces(problem_of(q, k, v, Options(mask)))}

    assert kinds(None, 2, 64) == kinds(Causal() & Window(3), 1, 500) == {Grid}
    assert kinds(Dense(torch.eye(64, dtype=torch.bool)), 2, 64) == {Grid}
    assert kinds(Causal(), 1, 1025) == kinds(~Causal(shift=1) | Window(3), 2, 257) == {Unit}


def test_linear_numbers():
    batch, head = Linear(0, 1), Linear(0, 0, 1)
    assert (7 + batch * 3 + head * 5 + 1).terms == (8, 3, 5, 0)
    assert ((batch - 2) * 4 + head // 2).terms == (-8, 4, 0, 1)
