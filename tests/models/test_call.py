"""What transformers passes to an attention function, brought into regard's terms."""

from __future__ import annotations

import pytest
import torch

from regard.errors import MaskError, RegardError, ShapeError
from regard.masks import Causal, Dense, Padding, Window
from regard.models.call import call_of
from regard.models.plan import plan_mask


class Module(torch.nn.Module):
    is_causal = False


def qkv(q=5, k=5):
    return torch.randn(2, 4, q, 8), torch.randn(2, 2, k, 8), torch.randn(2, 2, k, 6)


def test_without_a_mask_everything_is_seen():
    assert call_of(Module(), *qkv(), None).mask is None


def test_the_causal_flag_counts_where_there_is_no_mask():
    assert call_of(Module(), *qkv(), None, is_causal=True).mask == Causal()
    assert call_of(Module(), *qkv(), None, is_causal=True, sliding_window=3).mask == Causal() & Window(3)
    assert call_of(Module(), *qkv(1, 5), None, is_causal=True).mask is None


def test_flags_per_key_become_padding_however_they_are_shaped():
    valid = torch.tensor([[True, True, True, False, False], [True] * 5])
    for shaped in (valid, valid[:, None, None], valid[:, None, None].int()):
        assert call_of(Module(), *qkv(), shaped).mask == Padding(valid)


def test_the_least_number_in_a_float_mask_means_blocked_and_the_rest_is_added():
    added = torch.zeros(2, 1, 5, 5)
    added[:, :, :, 3] = torch.finfo(torch.float32).min
    blocked = call_of(Module(), *qkv(), added)
    assert blocked.bias is None
    assert blocked.mask == Dense(added == 0)
    added[:, :, 0, 0] = 0.5
    both = call_of(Module(), *qkv(), added)
    assert both.bias[0, 0, 0, 0] == 0.5
    assert both.bias[:, :, :, 3].abs().max() == 0


def test_spare_keys_of_a_static_cache_are_left_out():
    plan = plan_mask(2, 5, 9)
    call = call_of(Module(), *qkv(5, 9), plan)
    assert call.k.shape[2] == call.v.shape[2] == 5
    assert call.mask == Causal()


def test_keys_of_another_text_are_not_spare():
    from transformers.masking_utils import bidirectional_mask_function

    plan = plan_mask(2, 5, 9, mask_function=bidirectional_mask_function)
    assert call_of(Module(), *qkv(5, 9), plan).k.shape[2] == 9


def test_a_sink_that_is_not_passed_is_fetched_from_the_module():
    module = Module()
    module.sinks = torch.nn.Parameter(torch.randn(4))
    assert call_of(module, *qkv(), None).sink is not None
    assert call_of(Module(), *qkv(), None, s_aux=module.sinks).sink.shape == (4,)


@pytest.mark.parametrize("name", ["indices", "block_indices", "cache"])
def test_attention_that_needs_more_than_a_mask_is_refused(name):
    with pytest.raises(RegardError, match=rf"Module passes {name}=, because it .* layers=\[...\]"):
        call_of(Module(), *qkv(), None, **{name: torch.zeros(1)})


def eager_attention_forward(module, query, key, value, attention_mask, scaling, temperature=None, **kwargs):
    """The name that a model's file gives its own attention; this one reads an option of its own."""


def test_what_only_a_models_own_attention_reads_is_refused_and_not_missed():
    with pytest.raises(RegardError, match=r"Module passes temperature=, because it .* does not know"):
        call_of(Module(), *qkv(), None, temperature=torch.ones(1))
    assert call_of(Module(), *qkv(), None, temperature=None, position_ids=torch.ones(1)).mask is None


def test_a_mask_of_other_lengths_is_refused():
    with pytest.raises(
        MaskError, match="the mask describes 5 queries and 9 keys, and the layer attends with 5"
    ):
        call_of(Module(), *qkv(5, 7), plan_mask(2, 5, 9))


def test_a_mask_that_forbids_nothing_stretches_to_any_length():
    call = call_of(Module(), *qkv(1, 7), plan_mask(2, 1, 1))
    assert call.mask is None
    assert call.k.shape[2] == 7


def test_queries_without_heads_are_refused():
    with pytest.raises(ShapeError, match=r"Module attends with queries of shape \(2, 5, 8\)"):
        call_of(Module(), *(x[:, 0] for x in qkv()), None)
