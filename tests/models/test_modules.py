"""Models that people write themselves, with torch alone, are watched as they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, softmax

import regard
from regard.errors import ModelError
from regard.models import Recording, record, watch

IDS = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
ALLOWED = torch.ones(9, 9).tril().bool()


class Projected(nn.Module):
    """What differs is how queries, keys and values become an output."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        self.q, self.k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(self.q, self.k, v).transpose(1, 2).flatten(2))

    @property
    def weights(self) -> Tensor:
        """What the map should be."""
        scores = self.q @ self.k.mT * self.q.shape[-1] ** -0.5
        return scores.masked_fill(~ALLOWED, -torch.inf).softmax(-1)


class FusedAttention(Projected):
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True)


class WrittenOutAttention(Projected):
    n_head = 4

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return softmax((q @ k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf), -1) @ v


class FoldedAttention(Projected):
    """Heads and texts in one dimension, as torch.bmm takes them."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        scores = torch.bmm(q, k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf)
        return torch.bmm(torch.softmax(scores, dim=-1), v).unflatten(0, (2, 4))


class OneHeadAttention(Projected):
    """Without a dimension for heads, and with a mask for each text."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.q, self.k = q[:, None], k[:, None]
        return scaled_dot_product_attention(q, k, v, attn_mask=ALLOWED.expand(2, 9, 9))


class AttentionInTurns(Projected):
    """Head by head."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf)
        return torch.stack([softmax(scores[:, i], -1) @ v[:, i] for i in range(4)], 1)


class AttentionInParts(Projected):
    """Over the keys in two parts."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        halves = zip(k.split([4, 5], 2), v.split([4, 5], 2), strict=True)
        return sum(softmax(q @ part.mT, -1) @ values for part, values in halves)


class AttentionHead(nn.Module):
    """One head, a module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 24)

    def forward(self, x: Tensor) -> Tensor:
        self.q, self.k, v = self.qkv(x).chunk(3, -1)
        scores = (self.q @ self.k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf)
        return softmax(scores, -1) @ v


class FusedAttentionHead(AttentionHead):
    def forward(self, x: Tensor) -> Tensor:
        self.q, self.k, v = self.qkv(x).chunk(3, -1)
        return scaled_dot_product_attention(self.q, self.k, v, is_causal=True)


class Head(AttentionHead):
    """Only the module that holds it is named after attention."""


class ManyHeads(nn.Module):
    """Four heads side by side, in a module that may be called anything."""

    kind: type[AttentionHead] = AttentionHead

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([self.kind() for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)

    @property
    def weights(self) -> Tensor:
        q, k = (torch.stack([getattr(part, name) for part in self.parts], 1) for name in ("q", "k"))
        return (q @ k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf).softmax(-1)


class ManyFusedHeads(ManyHeads):
    kind = FusedAttentionHead


class MultiHeadAttention(ManyHeads):
    kind = Head


class Mixer(WrittenOutAttention):
    """Attention by another name."""


class Language(nn.Module):
    def __init__(self, kind: type[Projected] = WrittenOutAttention) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.blocks = nn.Embedding(50, 32), nn.ModuleList([kind(), kind()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = x + block(x)
        return x


@torch.no_grad()
@pytest.mark.parametrize("kind", [
    FusedAttention, WrittenOutAttention, FoldedAttention, OneHeadAttention, AttentionInTurns, ManyHeads,
    ManyFusedHeads, MultiHeadAttention,
])  # fmt: skip
def test_every_cell_is_the_models_own(kind, tmp_path):
    model = Language(kind)
    expected = model(IDS)
    with watch(model, store=tmp_path / "x.regard") as recording:
        assert torch.equal(model(IDS), expected)
    assert torch.equal(recording.token_ids["decoder"], IDS)
    stored = Recording.open(tmp_path / "x.regard")
    stored.check_model(model)
    for layer, block in enumerate(model.blocks):
        torch.testing.assert_close(stored.maps[layer].dense(), block.weights)
    assert list(stored.layers) == [0, 1]
    assert len(stored.atlas().heads) == 2 * block.weights.shape[1]


@torch.no_grad()
def test_layers_with_one_head_are_not_heads_of_one():
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embedding, self.layers = (
                nn.Embedding(50, 32),
                nn.ModuleList([AttentionHead(), AttentionHead()]),
            )

        def forward(self, ids: Tensor) -> Tensor:
            x = self.embedding(ids)
            for layer in self.layers:
                x = x + layer(x).repeat(1, 1, 4)
            return x

    model = Deep()
    with watch(model) as recording:
        model(IDS)
    assert [layer.map.shape for layer in recording.layers.values()] == [(2, 1, 9, 9)] * 2
    for number, layer in enumerate(model.layers):
        weights = (layer.q @ layer.k.mT * 8**-0.5).masked_fill(~ALLOWED, -torch.inf).softmax(-1)
        torch.testing.assert_close(recording.maps[number].dense()[:, 0], weights)


@torch.no_grad()
def test_torchs_own_transformer_has_three_stacks():
    torch.manual_seed(0)
    model = nn.Transformer(32, 4, 2, 2, 64, batch_first=True).eval()
    with watch(model) as recording:
        model(torch.randn(2, 7, 32), torch.randn(2, 5, 32))
    shapes = {
        role: [tuple(layer.map.shape) for layer in stack.values()] for role, stack in recording.stacks.items()
    }
    assert shapes == {
        "decoder": [(2, 4, 5, 5)] * 2,
        "encoder": [(2, 4, 7, 7)] * 2,
        "cross": [(2, 4, 5, 7)] * 2,
    }


@torch.no_grad()
@pytest.mark.parametrize(("kind", "says"), [
    (Mixer, r"no attention was seen: Language calls neither .* call regard.observe\(q, k, v\) there"),
    (AttentionInParts, "AttentionInParts attends several times in one call"),
])  # fmt: skip
def test_what_cannot_be_seen_names_the_remedy(kind, says):
    model = Language(kind)
    with pytest.raises(ModelError, match=says), watch(model):
        model(IDS)


def test_what_needs_more_than_a_module_says_so():
    with pytest.raises(ModelError, match="Language is no transformers model: its attention can be watched"):
        regard.knockout(Language(), IDS, heads=[(0, 0)])
    with pytest.raises(ModelError, match=r"with watch\(model\) as recording: model\(\.\.\.\)"):
        record(Language(), IDS)
