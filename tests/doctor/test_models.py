"""Whole models of token ids, seen from outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GPTNeoConfig, LlamaConfig, LlamaModel, T5Config, T5EncoderModel
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from regard.doctor import examine
from regard.doctor.as_built import changed_settings


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


def test_no_hook_stays_behind():
    model = TinyCausalModel(causal=True)
    examine(model)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())


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


class Mixer(nn.Module):
    """Queries, keys and values by head, from one product."""

    scaled = True

    def __init__(self):
        super().__init__()
        self.joint, self.back = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        k, q, v = self.joint(x).unflatten(-1, (4, 3, 8)).unbind(-2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k)
        scores = scores * 8**-0.5 if self.scaled else scores
        return self.back(torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).flatten(-2))


class Unscaled(Mixer):
    scaled = False


class Stage(nn.Module):
    """A residual branch that is computed again for its gradients."""

    def __init__(self, mixer):
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(32), mixer

    def forward(self, x):
        return x + checkpoint(self.mixer, self.norm(x), use_reentrant=False)


class Stack(nn.Module):
    """A model whose argument and classes have names of their own."""

    def __init__(self, mixer, words=50):
        super().__init__()
        self.table, self.head = nn.Embedding(words, 32), nn.Linear(32, words)
        self.stages = nn.ModuleList([Stage(mixer()) for _ in range(2)])

    def forward(self, words):
        x = self.table(words)
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


@pytest.mark.parametrize("words", [13, 50])
def test_a_checkpointed_model_under_names_of_its_own_is_examined_inside(words):
    torch.manual_seed(0)
    found = examine(Stack(Mixer, words))
    assert (found.verdict, found.codes) == ("healthy", ())
    assert "examined inside: stages.0.mixer" in found.notes
    broken = examine(Stack(Unscaled, words))
    assert broken.codes == ("missing-scale",)
    assert broken.findings[0].evidence.startswith("stages.0.mixer: ")


class Readers(nn.Module):
    """Learnt queries read the tokens."""

    def __init__(self):
        super().__init__()
        self.latents = nn.Parameter(torch.randn(5, 32))
        self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        return self.inner(self.latents.expand(len(x), -1, -1), x, x)[0]


def test_learnt_queries_are_not_examined_and_told_what_to_examine_instead():
    found = examine(Readers())
    assert found.verdict == "not examined"
    assert found.unexamined[0].startswith(
        "Readers was called on a (2, 6, 32) tensor, and it returned (2, 5, 32), which has no vector for each "
        "token: its queries are not its tokens, but learnt or pooled"
    )
    assert found.unexamined[0].endswith("and examine that function.")


def small_llama():
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    torch.manual_seed(0)
    return LlamaModel(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()


def test_a_setting_that_was_changed_in_one_layer_of_a_librarys_model_is_found():
    model = small_llama()
    assert examine(model).codes == ()
    model.layers[1].self_attn.scaling = 1.0
    found = examine(model)
    assert found.codes == ("missing-scale",)
    assert found.findings[0].evidence.startswith("layers.1.self_attn: scaling is 1.0, and 0.35355")


@pytest.mark.parametrize("part", ["layers.0.self_attn", pytest.param("layers.0", marks=pytest.mark.long)])
def test_a_layer_of_a_librarys_model_is_examined_by_itself(part):
    layer = small_llama().get_submodule(part)
    found = examine(layer)
    assert (found.verdict, found.codes) == ("healthy", ())
    assert found.reading["query"].endswith("q_proj")
    getattr(layer, "self_attn", layer).scaling = 1.0
    assert examine(layer).codes == ("missing-scale",)


def test_what_a_librarys_class_means_to_do_is_a_note():
    attention = GPTNeoSelfAttention(GPTNeoConfig(hidden_size=32, num_heads=4), "global", 0).eval()
    found = examine(attention)
    assert found.verdict == "healthy"
    assert "the scores are not divided by √d_k, as its library's class does it" in found.notes


def test_a_model_whose_attention_was_not_compared_says_so():
    config = T5Config(vocab_size=50, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
    found = examine(T5EncoderModel(config).eval())
    assert found.verdict == "healthy"
    assert "its attention was not compared with the formula; it was probed from outside only" in found.notes


def test_what_cannot_be_built_again_has_no_changed_settings():
    assert changed_settings(nn.Linear(2, 2)) == {}
