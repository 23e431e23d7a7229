"""Claims about heads, and about what mixes what."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Bars, Grid
from regard.claims.subjects import subject
from regard.claims.training import right, train
from regard.claims.words import number, percent
from regard.engine import attention
from regard.nn import MultiHeadAttention

__all__ = ["CLAIMS"]

# Of the bundled model.
WIDTH = 384

SYMBOLS, LENGTH = 12, 8


class _TwoLooks(nn.Module):
    """One attention layer that must name the tokens at two places, each with a linear reader of its own."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(SYMBOLS, dim)
        self.place = nn.Parameter(torch.randn(LENGTH, dim))
        self.asked = nn.Parameter(torch.randn(1, 1, dim))
        self.layer = MultiHeadAttention(dim, heads)
        self.out = nn.Linear(dim, 2 * SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        memory = self.embed(symbols) + self.place
        found = self.layer(self.asked.expand(len(symbols), -1, -1), memory)
        return self.out(found).view(len(symbols), 2, SYMBOLS)


def _two_places(size: int) -> tuple[Tensor, Tensor]:
    symbols = torch.randint(SYMBOLS, (size, LENGTH))
    return symbols, symbols[:, [2, 5]]


def _score_rank(layer: MultiHeadAttention, n: int = 64) -> int:
    """The rank of the score matrix of one head, for n random tokens."""
    x = torch.randn(n, layer.dim, dtype=torch.float64)
    first = slice(0, layer.head_dim)
    q, k = (x @ p.weight.double().T[:, first] for p in (layer.q_proj, layer.k_proj))
    return int(torch.linalg.matrix_rank(q @ k.T))


def measure_budget(heads: int = 8, dim: int = 32, steps: int = 300) -> Measurement:
    """One head against several of the same width in all: parameters, a task with two looks, ranks."""
    found = {}
    for name, count in (("one", 1), ("several", heads)):
        torch.manual_seed(0)
        model = _TwoLooks(dim, count)
        parameters = sum(p.numel() for p in model.layer.parameters())
        rank = _score_rank(model.layer)
        train(model, _two_places, steps, rate=1e-2)
        found[name] = (parameters, right(model, _two_places), rank)
    return Measurement(
        {
            "dim": dim,
            "heads": heads,
            **{f"parameters_{name}": values[0] for name, values in found.items()},
            **{f"right_{name}": values[1] for name, values in found.items()},
            **{f"score_rank_{name}": values[2] for name, values in found.items()},
        },
        Bars(
            ["one head", f"{heads} heads"],
            {"right": [found["one"][1], found["several"][1]]},
            "both tokens named rightly",
            level=1 / SYMBOLS,
        ),
    )


def judge_budget(m: Measurement) -> Verdict:
    heads = f"{m['heads']} head{'s' * (m['heads'] > 1)}"
    if m["parameters_one"] != m["parameters_several"]:
        return Verdict.folklore(
            f"one head of {m['dim']} has {m['parameters_one']:,} parameters and {heads} "
            f"{m['parameters_several']:,}"
        )
    found = (
        f"both have {m['parameters_one']:,} parameters; where two tokens must be looked up at once one head "
        f"names {percent(m['right_one'])} rightly and {heads} {percent(m['right_several'])}"
    )
    if m["right_several"] < m["right_one"] + 0.05:
        return Verdict.folklore(found)
    if m["score_rank_several"] < m["score_rank_one"]:
        return Verdict.conditional(
            f"{found}; but each look is coarser: the scores of one of {heads} have rank "
            f"{m['score_rank_several']}, those of the single head {m['score_rank_one']}"
        )
    return Verdict.holds(found)


def _coupling(after: Callable[[Tensor], Tensor], heads: int, dim: int, n: int) -> Tensor:
    """How strongly each head's values reach each head's part of the output: a matrix of norms."""
    q, k, v = torch.randn(3, 1, heads, n, dim // heads, dtype=torch.float64).unbind()

    def output(values: Tensor) -> Tensor:
        joined = attention(q, k, values).transpose(1, 2).reshape(1, n, dim)
        return after(joined)[0, -1].view(heads, dim // heads)

    jacobian = torch.autograd.functional.jacobian(output, v)  # (to, dim, 1, from, n, dim)
    return jacobian.squeeze(2).square().sum((1, 3, 4)).sqrt()


def measure_projection(
    without: nn.Module | None = None, heads: int = 4, dim: int = 32, n: int = 9
) -> Measurement:
    """Which head reaches which part of the output: no projection, one, and a feed-forward part instead."""
    alone = (lambda x: x) if without is None else without.double()
    projection = nn.Linear(dim, dim).double()
    feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)).double()
    off = ~torch.eye(heads, dtype=torch.bool)
    found = {
        name: _coupling(after, heads, dim, n)
        for name, after in (("without", alone), ("with", projection), ("feed_forward", feed))
    }
    largest = max(found[name].max() for name in ("without", "with"))
    return Measurement(
        {
            **{f"crosstalk_{name}": (c[off].max() / c.max()).item() for name, c in found.items()},
            **{f"heads_reached_{name}": int((c > 0).sum(1).max()) for name, c in found.items()},
            "heads": heads,
        },
        Grid.pair(
            (found["without"] / largest).tolist(),
            (found["with"] / largest).tolist(),
            "part of the output",
            "head (left: no projection, right: with it)",
            annotate=True,
        ),
    )


def judge_projection(m: Measurement) -> Verdict:
    if m["crosstalk_without"] > 0:
        return Verdict.folklore(
            f"each part of the output hears {m['heads_reached_without']} of {m['heads']} heads without it"
        )
    if m["crosstalk_with"] == 0:
        return Verdict.folklore("with the projection the heads stay apart as well")
    found = (
        f"without it every part of the output hears exactly {m['heads_reached_without']} head, with it "
        f"{m['heads_reached_with']} (from other heads up to {percent(m['crosstalk_with'])} of the largest)"
    )
    if m["crosstalk_feed_forward"] > 0:
        return Verdict.conditional(
            f"{found}; but they need not stay so: in a feed-forward part that follows directly each number "
            f"hears {m['heads_reached_feed_forward']} heads"
        )
    return Verdict.holds(found)


Block = Callable[[bool], Callable[[Tensor], Tensor]]


def bundled_block(attends: bool) -> Callable[[Tensor], Tensor]:
    """A layer of the bundled model, with its attention or with nothing in its place."""
    model = subject().model.model
    layer = model.layers[3]

    def block(x: Tensor) -> Tensor:
        if attends:
            angles = model.rotary_emb(x, torch.arange(x.shape[1])[None])
            return layer(x, position_embeddings=angles)
        return x + layer.mlp(layer.post_attention_layernorm(x))

    return block


def measure_mixing(block: Block = bundled_block, n: int = 12, dim: int = WIDTH) -> Measurement:
    """How strongly each output depends on each input of a block, with attention and without."""
    x = torch.randn(1, n, dim)
    found = {}
    for name, attends in (("with", True), ("without", False)):
        run = block(attends)
        rows = []
        for i in range(n):
            given = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(run(given)[0, i].square().sum(), given)
            rows.append(gradient[0].norm(dim=-1))
        found[name] = torch.stack(rows)
    off = ~torch.eye(n, dtype=torch.bool)
    whole, cut = ((found[name] / found[name].max()).tolist() for name in ("with", "without"))
    return Measurement(
        {
            "tokens": n,
            **{f"pairs_{name}": int((c[off] > 0).sum()) for name, c in found.items()},
            **{f"largest_{name}": (c[off].max() / c.max()).item() for name, c in found.items()},
        },
        Grid.pair(whole, cut, "output", "input (left: whole block, right: without attention)", limit=0.3),
    )


def judge_mixing(m: Measurement) -> Verdict:
    if m["pairs_with"] == 0:
        return Verdict.folklore(f"with attention no output of {m['tokens']} depends on another token either")
    if m["pairs_without"]:
        return Verdict.folklore(
            f"with attention cut, {m['pairs_without']} pairs of different tokens still depend on each other "
            f"(up to {number(m['largest_without'])} of the largest gradient)"
        )
    return Verdict.holds(
        f"with attention {m['pairs_with']} pairs of {m['tokens']} tokens depend on each other; with "
        f"attention cut none does, exactly"
    )


CLAIMS = (
    Claim(
        "heads-same-budget",
        "h heads of size d/h have the parameters of one head of size d, and can do more.",
        "Parameters counted; a task that needs two looks at once, trained both ways; rank of the scores.",
        measure_budget,
        judge_budget,
    ),
    Claim(
        "w_o-needed",
        "Without the output projection heads stay apart.",
        "The Jacobian from every head's values to every head's part of the output.",
        measure_projection,
        judge_projection,
    ),
    Claim(
        "only-attention-mixes",
        "Attention is the only place in a block where tokens exchange information.",
        "The Jacobian of a layer of the bundled model, whole and with its attention cut out.",
        measure_mixing,
        judge_mixing,
    ),
)
