"""`DropInAttention` in the place of PyTorch's module: same numbers, same gradients, same call."""

from __future__ import annotations

import copy
import re
import warnings

import pytest
import torch
from torch import nn

from regard import Entropy
from regard.errors import MaskError, ModelError, ShapeError
from regard.masks import Causal
from regard.nn import DropInAttention, drop_in

LENGTH, HEADS, BATCH = 9, 4, 3
UPPER = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
LATE = torch.arange(LENGTH) >= torch.tensor([[9], [5], [1]])
ALL_HEADS = torch.rand(BATCH * HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.3
ALL_HEADS[..., 0] = False


def added(blocked: torch.Tensor) -> torch.Tensor:
    """A bool mask as PyTorch adds it: 0 and -inf, here with some other number among the 0s."""
    return (
        torch.linspace(-1, 1, blocked.numel()).view(blocked.shape).double().masked_fill(blocked, -torch.inf)
    )


def pair(**options) -> tuple[nn.MultiheadAttention, DropInAttention]:
    theirs = nn.MultiheadAttention(16, HEADS, dtype=torch.float64, **options)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    return theirs, DropInAttention.of(theirs)


MASKS = {
    "none": {},
    "padding": {"key_padding_mask": LATE},
    "pairs": {"attn_mask": UPPER},
    "both": {"key_padding_mask": LATE, "attn_mask": UPPER},
    "every head": {"attn_mask": ALL_HEADS},
    "added": {"attn_mask": added(UPPER)},
    "both added": {"key_padding_mask": added(LATE), "attn_mask": added(UPPER)},
    "every head added": {"attn_mask": added(ALL_HEADS)},
    "causal": {"attn_mask": UPPER, "is_causal": True},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True}, {"add_zero_attn": True, "add_bias_kv": True}])
@pytest.mark.parametrize("batch_first", [True, False])
def test_outputs_weights_and_gradients_are_pytorchs(masks, extra, batch_first):
    theirs, ours = pair(batch_first=batch_first, **extra)
    x = torch.randn(BATCH, LENGTH, 16, dtype=torch.float64)
    x = (x if batch_first else x.transpose(0, 1)).requires_grad_()
    found = []
    for module in (theirs, ours):
        out, weights = module(x, x, x, average_attn_weights=False, **masks)
        loss = out.square().sum() + weights.square().sum()
        found.append((out, weights, *torch.autograd.grad(loss, [x, *theirs.parameters()])))
    torch.testing.assert_close(found[1], found[0])
    alone, none = ours(x, x, x, need_weights=False, **masks)
    assert none is None
    torch.testing.assert_close(alone, found[0][0])


def test_cross_attention_with_other_widths_and_averaged_weights_is_pytorchs():
    theirs, ours = pair(kdim=5, vdim=7, bias=False)
    query, key, value = (torch.randn(n, 2, d).double() for n, d in ((3, 16), (65, 5), (65, 7)))
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value))


def test_causal_is_aligned_at_the_first_key_and_needs_no_mask_beside_it():
    theirs, ours = pair(batch_first=True)
    query, key = torch.randn(2, 3, 16).double(), torch.randn(2, 5, 16).double()
    blocked = ~Causal(shift=-2).dense(3, 5)
    want = theirs(query, key, key, attn_mask=blocked)
    torch.testing.assert_close(ours(query, key, key, is_causal=True), want)


def test_one_sequence_without_a_batch_is_pytorchs():
    theirs, ours = pair()
    x, late = torch.randn(LENGTH, 16).double(), LATE[1]
    torch.testing.assert_close(ours(x, x, x, key_padding_mask=late), theirs(x, x, x, key_padding_mask=late))


def test_a_row_with_nothing_to_attend_to_gives_the_bias_of_the_projection_and_not_nan():
    _, ours = pair(batch_first=True)
    x = torch.randn(1, 4, 16).double().requires_grad_()
    out, weights = ours(x, x, x, key_padding_mask=torch.ones(1, 4, dtype=torch.bool))
    assert torch.equal(out, ours.out_proj.bias.expand_as(out))
    assert not weights.any()
    out.sum().backward()
    assert bool(x.grad.isfinite().all())


def test_dropout_acts_in_training_and_weights_are_those_before_it():
    theirs, ours = pair(dropout=0.5)
    x = torch.randn(65, 1, 16).double()
    out, weights = ours(x, x, x)
    assert not torch.allclose(out, ours(x, x, x)[0])
    calm, weights_of_theirs = theirs.eval()(x, x, x)
    torch.testing.assert_close(weights, weights_of_theirs)
    torch.testing.assert_close(ours.eval()(x, x, x)[0], calm)


LAYER = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "batch_first": True, "dtype": torch.float64}


def calls_of(module: nn.Module) -> list[str]:
    """Names of the drop-ins that run, as they run."""
    called = []
    for name, part in module.named_modules():
        if isinstance(part, DropInAttention):
            part.register_forward_pre_hook(lambda *_, name=name: called.append(name))
    return called


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("mode", ["train", "eval", "inference"])
@pytest.mark.parametrize("padded", [True, False])
def test_an_encoder_layer_computes_the_same_with_it_and_does_call_it(batch_first, mode, padded):
    layer = nn.TransformerEncoderLayer(**LAYER | {"batch_first": batch_first}, dropout=0.0)
    layer.train(mode == "train")
    x = torch.randn(BATCH, LENGTH, 16).double()
    x = x if batch_first else x.transpose(0, 1)
    masks = {"src_key_padding_mask": LATE} if padded else {"src_mask": UPPER, "is_causal": True}
    swapped = copy.deepcopy(layer)
    swapped.self_attn = DropInAttention.of(swapped.self_attn)
    # A hook would by itself keep PyTorch's layer off its fast path: what ran is seen in `seen`.
    swapped.self_attn.stats = [Entropy()]
    with torch.set_grad_enabled(mode != "inference"):
        torch.testing.assert_close(swapped(x, **masks), layer(x, **masks))
    assert swapped.self_attn.seen.entropy.shape == (BATCH, HEADS, LENGTH)


@pytest.mark.parametrize("swap", ["whole", "layers"])
def test_a_padded_encoder_in_inference_computes_the_same_even_through_nested_tensors(swap):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER), 2).eval()
    x = torch.randn(BATCH, LENGTH, 16).double()
    ours = copy.deepcopy(encoder)
    if swap == "whole":
        drop_in(ours)
    else:
        for layer in ours.layers:
            layer.self_attn = DropInAttention.of(layer.self_attn)
    with torch.no_grad(), warnings.catch_warnings():
        # Nested tensors are a prototype, says PyTorch.
        warnings.simplefilter("ignore")
        want, got = encoder(x, src_key_padding_mask=LATE), ours(x, src_key_padding_mask=LATE)
    torch.testing.assert_close(got[~LATE], want[~LATE])


def test_a_whole_transformer_computes_the_same_and_trains_the_same_parameters():
    model = nn.Transformer(16, 4, 1, 1, 24, dropout=0.0, batch_first=True, dtype=torch.float64)
    source, target = torch.randn(BATCH, LENGTH, 16).double(), torch.randn(BATCH, 5, 16).double()
    options = {"tgt_mask": UPPER[:5, :5], "src_key_padding_mask": LATE, "memory_key_padding_mask": LATE}
    want = model(source, target, **options)
    before = dict(model.named_parameters())
    assert drop_in(model) is model
    assert all(parameter is before[name] for name, parameter in model.named_parameters())
    called = calls_of(model)
    torch.testing.assert_close(model(source, target, **options), want)
    assert called == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]


def test_checkpoints_go_both_ways():
    theirs, ours = pair()
    fresh = DropInAttention(16, HEADS, dtype=torch.float64)
    fresh.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 2, 16).double()
    torch.testing.assert_close(fresh(x, x, x), theirs(x, x, x))
    nn.MultiheadAttention(16, HEADS, dtype=torch.float64).load_state_dict(ours.state_dict())


def test_hooks_of_the_replaced_module_stay_and_its_own_dicts_do_not_change():
    theirs = nn.MultiheadAttention(16, HEADS)
    called = []
    theirs.register_forward_hook(lambda *_: called.append(True))
    ours, x = DropInAttention.of(theirs), torch.randn(5, 2, 16)
    ours(x, x, x)
    assert called == [True]
    ours.register_buffer("mine", torch.ones(1))
    assert not hasattr(theirs, "mine")


def test_observing_leaves_the_observation_of_the_last_call_and_changes_nothing():
    _, ours = pair(batch_first=True)
    x = torch.randn(2, 5, 16).double().requires_grad_()
    plain, weights = ours(x, x, x, average_attn_weights=False)
    assert ours.seen is None
    ours.stats = [Entropy()]
    torch.testing.assert_close(ours(x, x, x)[0], plain)
    torch.testing.assert_close(ours.seen.map.dense(), weights.detach())
    assert not ours.seen.entropy.requires_grad
    assert not ours.seen.out.requires_grad


X = torch.zeros(3, 9, 16, dtype=torch.float64)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"attn_mask": UPPER[:3]},
            ShapeError,
            "attn_mask has shape (3, 9); it must be (9, 9), or (12, 9, 9) with a matrix for every head of "
            "every sequence.",
        ),
        (
            {"key_padding_mask": LATE[:1]},
            ShapeError,
            "key_padding_mask has shape (1, 9); it must be (3, 9).",
        ),
        (
            {"attn_mask": UPPER.int()},
            MaskError,
            "attn_mask is torch.int32; it must be bool (True = blocked) or float (added).",
        ),
    ],
)
def test_a_wrong_mask_is_named(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        pair(batch_first=True)[1](X, X, X, **options)


def test_what_cannot_be_swapped_is_said():
    with pytest.raises(
        ModelError, match=re.escape("got a Linear; only torch.nn.MultiheadAttention has a drop-in.")
    ):
        DropInAttention.of(nn.Linear(2, 2))
    with pytest.raises(ModelError, match=re.escape("for one alone use DropInAttention.of.")):
        drop_in(nn.MultiheadAttention(4, 2))
