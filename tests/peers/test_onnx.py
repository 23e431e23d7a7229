"""Every case that ONNX ships for its attention operators, through every door of regard that can take it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from peers.onnx_cases import CASES, TWINS, Case
from regard import AttentionMap, KVCache, attention, explain_dispatch, sdpa, trace

# What is not run, and why. A new case of ONNX's is run unless it is listed here.
PROBABILITIES = "it changes the weights after softmax, and regard has no hook there"
SOFTCAP = "PyTorch's signature, which `sdpa` keeps, has no soft cap"
SCORE_MOD = "PyTorch's signature, which `sdpa` keeps, has no score_mod"
NOT_RUN = {
    "attention": {"flexattention_prob_mod": PROBABILITIES},
    "cache": {"flexattention_prob_mod": PROBABILITIES},
    "sdpa": {
        "attention_3d_diff_heads_sizes_softcap": SOFTCAP,
        "attention_3d_gqa_softcap": SOFTCAP,
        "attention_3d_softcap": SOFTCAP,
        "attention_3d_with_past_and_present_qk_matmul_softcap": SOFTCAP,
        "attention_4d_diff_heads_sizes_softcap": SOFTCAP,
        "attention_4d_gqa_softcap": SOFTCAP,
        "attention_4d_softcap": SOFTCAP,
        "attention_4d_softcap_neginf_mask": SOFTCAP,
        "attention_4d_softcap_neginf_mask_poison": SOFTCAP,
        "attention_4d_with_qk_matmul_softcap": SOFTCAP,
        "attention_local_window_gqa_rank4_mask": SOFTCAP,
        "flexattention_causal_mask": SCORE_MOD,
        "flexattention_prob_mod": PROBABILITIES,
        "flexattention_relative_positional": SCORE_MOD,
        "flexattention_score_mod": SCORE_MOD,
        "flexattention_soft_cap": SCORE_MOD,
    },
}
# Attributes of the operators that the cases are translated by; a new one must not be overlooked.
KNOWN = {
    *(
        "is_causal",
        "scale",
        "softcap",
        "q_num_heads",
        "kv_num_heads",
        "left_window_size",
        "right_window_size",
    ),
    *("qk_matmul_output_mode", "softmax_precision"),
}
INPUTS = {"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"}


def run_by(route: str):
    return pytest.mark.parametrize("case", [c for n, c in CASES.items() if n not in NOT_RUN[route]], ids=str)


def agree(got: Tensor, wanted: Tensor, terms: int) -> None:
    """Sums of so many terms in a dtype, rounded in another order, differ by at most so many of its units."""
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    got, wanted, unit = got.double(), wanted.double(), torch.finfo(wanted.dtype).eps
    assert torch.equal(got == -torch.inf, wanted == -torch.inf)
    finite = wanted != -torch.inf
    largest = wanted[finite].abs().max().item() if finite.any() else 0.0
    error = (got[finite] - wanted[finite]).abs().max().item() if finite.any() else 0.0
    assert error <= terms * unit * largest, f"{error / unit:.3g} units of {largest:.3g}"


def output(case: Case) -> Tensor:
    return case.wanted.get("Y", next(iter(case.wanted.values())))


def judge(case: Case, out: Tensor) -> None:
    agree(case.joined_heads(out), output(case), case.kv[0].shape[2])


@run_by("attention")
def test_attention_gives_what_onnx_wants_on_every_backend(case):
    options = case.options()
    chosen = explain_dispatch(case.q, *case.kv, **options).backend
    for backend in {"auto", "torch", chosen}:
        judge(case, attention(case.q, *case.kv, **options, backend=backend))


@run_by("sdpa")
def test_sdpa_gives_what_onnx_wants(case):
    mask, bias = case.mask, case.bias
    causal = bool(case.attributes.get("is_causal"))
    # PyTorch's causal mask starts at the first key, which is ONNX's where nothing is cached.
    if causal and not {"past_key", "nonpad_kv_seqlen", "attn_mask"} & {*case.inputs} and not case._window():
        given = {"is_causal": True}
    elif bias is None:
        given = {"attn_mask": mask}
    else:
        full = (*case.q.shape[:3], case.kv[0].shape[2])
        allowed = True if mask is None else mask.bind(*full[:2]).dense(*full[2:])
        given = {"attn_mask": torch.where(torch.as_tensor(allowed), bias, -torch.inf)}
    judge(case, sdpa(case.q, *case.kv, **given, scale=case.scale, enable_gqa=True))


@run_by("cache")
def test_a_cache_of_the_past_gives_what_onnx_wants(case):
    cache = KVCache()
    (k, v), first = case.new, 1
    if case.past is None:
        # Without a past one key comes alone, and the rest after it.
        cache.append(k[:, :, :first], v[:, :, :first])
        k, v = k[:, :, first:], v[:, :, first:]
    else:
        cache.append(*case.past)
    keys, values = cache.append(k, v)
    for name, held in (("present_key", keys), ("present_value", values)):
        assert name not in case.wanted or torch.equal(held, case.wanted[name])
    judge(case, attention(case.q, keys, values, **case.options()))


OBSERVED = [case for case in CASES.values() if "qk_matmul_output" in case.wanted]
# What ONNX calls the modes: the plain product, after the soft cap, after the mask, after softmax.
PRODUCT, CAPPED, MASKED, SOFTMAX = range(4)


def up_to(case: Case, mode: int) -> dict:
    """The options of a call whose scores are those of the mode."""
    options = case.options()
    left_out = {PRODUCT: ("mask", "bias", "softcap", "score_mod"), CAPPED: ("mask", "bias", "score_mod")}
    return {name: value for name, value in options.items() if name not in left_out.get(mode, ())}


@pytest.mark.parametrize("case", OBSERVED, ids=str)
def test_a_map_holds_what_onnx_calls_qk_matmul_output(case):
    mode = case.attributes.get("qk_matmul_output_mode", PRODUCT)
    seen = AttentionMap.of(case.q, case.kv[0], **up_to(case, mode))
    got = seen.dense() if mode == SOFTMAX else seen.scores(...)
    agree(got.to(case.q.dtype), case.wanted["qk_matmul_output"], case.q.shape[-1])


@pytest.mark.parametrize("case", OBSERVED, ids=str)
def test_a_trace_has_the_step_onnx_calls_qk_matmul_output(case):
    mode = case.attributes.get("qk_matmul_output_mode", PRODUCT)
    steps = trace(case.q, *case.kv, **case.options())
    before = steps.names[steps.names.index("weights") - 1]
    step = {PRODUCT: "scaled", CAPPED: "capped", MASKED: before, SOFTMAX: "weights"}[mode]
    # A trace of half-precision inputs is computed in float32.
    agree(steps[step].value.to(case.q.dtype), case.wanted["qk_matmul_output"], case.q.shape[-1])
    judge(case, steps.output.to(case.q.dtype))


def test_what_is_not_run_is_shipped_and_the_reason_holds():
    for route, listed in NOT_RUN.items():
        for name, reason in listed.items():
            case = CASES[name]
            assert ("prob_mod" in case.graphs) == (reason is PROBABILITIES), (route, name)
            assert reason is not SOFTCAP or case.softcap, (route, name)
            assert reason is not SCORE_MOD or "score_mod" in case.graphs, (route, name)


def test_every_shipped_case_is_run_or_repeats_one_that_is():
    assert len(CASES) >= 104
    assert {*TWINS.values()} <= {*CASES}


def test_no_input_or_attribute_of_a_case_is_overlooked():
    for case in CASES.values():
        assert {*case.inputs} <= INPUTS, case
        assert {*case.attributes} <= KNOWN, case
        assert {*case.graphs} <= {"score_mod", "prob_mod"}, case
        assert {*case.wanted} <= {"Y", "present_key", "present_value", "qk_matmul_output"}, case
