"""Whole models of token ids, seen from outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.doctor import examine


class TinyModel(nn.Module):
    """One layer of attention over embeddings."""

    def __init__(self, causal=False, reads_mask=True, dropout=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
        self.ordered, self.reads_mask, self.dropout = causal, reads_mask, dropout

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        n = x.shape[1]
        allowed = torch.ones(n, n, dtype=torch.bool)
        allowed = (allowed.tril() if self.ordered else allowed).expand(len(x), n, n)
        if attention_mask is not None and self.reads_mask:
            allowed = allowed & attention_mask[:, None].bool()
        y = x + F.scaled_dot_product_attention(x, x, x, attn_mask=allowed)
        return self.head(F.dropout(y, self.dropout))


class TinyCausalModel(TinyModel):
    """The same, with a name that promises order."""


@pytest.mark.parametrize("causal", [False, True])
def test_a_model_without_a_module_for_attention_is_not_examined_inside(causal):
    found = examine(TinyModel(causal))
    assert not found.findings
    assert "none of its modules was recognised as attention" in found.unexamined[0]


def test_a_model_that_promises_order_must_keep_it():
    assert not examine(TinyCausalModel(causal=True)).findings
    assert examine(TinyCausalModel(causal=False)).codes == ("causal-leak",)
    assert examine(TinyModel(causal=False), causal=True).codes == ("causal-leak",)


def test_a_model_that_ignores_padding_is_found():
    assert examine(TinyModel(reads_mask=False)).codes == ("mask-ignored",)


def test_the_model_is_given_back_as_it_was():
    model = TinyModel().train()
    model.head.eval()
    examine(model)
    assert model.training
    assert not model.head.training


def test_dropout_that_stays_on_is_found():
    assert examine(TinyModel(dropout=0.2)).codes == ("dropout-in-eval",)


class Pooled(TinyModel):
    def forward(self, input_ids, attention_mask=None):
        return super().forward(input_ids, attention_mask).mean(1)


def test_a_model_without_one_vector_per_token_is_refused():
    found = examine(Pooled())
    assert found.verdict == "not examined"
    assert "Pooled could not be called" in found.unexamined[0]
    assert "no tensor of one vector per token" in found.unexamined[0]
