"""What `examine` is told, what it finds out, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from effort import examples
from regard.doctor import Diagnosis, examine
from regard.errors import RegardError


def plain(q, k, v):
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


def with_mask(q, k, v, mask=None):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize(
    ("layout", "fn"),
    [
        ("bhnd", plain),
        ("bnhd", lambda q, k, v: plain(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)),
        ("hnd", lambda q, k, v: plain(q, k, v) if q.dim() == 3 else 1 / 0),
        ("nd", lambda q, k, v: plain(q, k, v) if q.dim() == 2 else 1 / 0),
    ],
)
def test_the_layout_is_found_out(layout, fn):
    found = examine(fn)
    assert found.reading["layout"] == layout
    assert found.healthy


def test_a_layout_that_is_given_is_believed():
    # Left to itself the doctor would take four axes.
    assert examine(plain, layout="bnd").reading["layout"] == "bnd"


def test_arguments_are_called_by_their_names_in_any_order():
    assert examine(lambda values, keys, queries: plain(queries, keys, values)).healthy


def test_numpy_functions_are_given_arrays():
    def attention(q, k, v):
        assert isinstance(q, np.ndarray)
        scores = q @ np.swapaxes(k, -1, -2)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return scores / scores.sum(-1, keepdims=True) @ v

    assert examine(attention).codes == ("missing-scale",)


def test_a_mask_means_what_it_does_unless_one_says_what_it_must_mean():
    found = examine(with_mask)
    assert found.healthy
    assert found.reading["mask"] == "mask: bool, True blocks"
    assert examine(with_mask, mask="allowed").codes == ("mask-inverted",)


def test_causal_is_a_finding_only_where_it_was_meant():
    assert examine(plain).healthy
    assert examine(plain, causal=True).codes == ("causal-leak",)


@examples(8)
@given(
    st.floats(0.02, 3.0).filter(
        lambda scale: all(abs(scale / c - 1) > 0.02 for c in (1, 12**-0.5, 1 / 12, 48**-0.5, 6**-0.5))
    )
)
def test_any_other_scale_is_measured(scale):
    found = examine(lambda q, k, v: (q @ k.mT * scale).softmax(-1) @ v)
    assert found.codes == ("wrong-scale",)
    assert f"scale {scale:.2g}"[:-1] in found.findings[0].evidence


def test_a_fixed_width_can_be_named():
    def attention(q, k, v):
        return (q @ k.mT / 8).softmax(-1) @ v

    assert examine(attention, dim=64).healthy
    assert examine(attention).codes == ("wrong-scale",)


def test_two_mistakes_at_once_are_both_named():
    found = examine(lambda q, k, v: (q @ k.mT).softmax(-2) @ v)
    assert set(found.codes) == {"missing-scale", "softmax-axis"}


def test_what_fits_no_formula_is_not_examined_and_the_nearest_form_is_named():
    found = examine(lambda q, k, v: torch.sigmoid(q @ k.mT) @ v)
    assert found.verdict == "not examined"
    assert not found.healthy
    assert not found.findings
    assert "no known form of softmax(q·k)·v: the nearest, the " in found.unexamined[0]
    assert "% away, and the weights of one query sum to" in found.unexamined[0]


def test_a_finding_says_what_why_and_how():
    text = str(examine(lambda q, k, v: (q @ k.mT).softmax(-1) @ v))
    for part in (
        "missing-scale",
        "evidence",
        "expected",
        "got",
        "line",
        "why",
        "mend",
        "write",
        "scale 1 to",
    ):
        assert part in text


def test_a_diagnosis_survives_json():
    found = examine(F.scaled_dot_product_attention)
    assert Diagnosis.from_dict(found.as_dict()) == found


def test_the_module_itself_is_left_alone():
    module = nn.MultiheadAttention(16, 2, batch_first=True).train()
    before = {name: x.clone() for name, x in module.state_dict().items()}
    examine(module)
    assert module.training
    assert all(torch.equal(before[name], x) for name, x in module.state_dict().items())


def test_the_seed_of_the_caller_is_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    examine(lambda q, k, v: F.dropout(plain(q, k, v)))
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("thing", "options", "message"),
    [
        (3, {}, r"int cannot be examined; wanted a function of q, k and v, or an nn\.Module\."),
        (plain, {"layout": "xyz"}, r"layout='xyz' is not known; wanted one of bhnd, bnhd"),
        (with_mask, {"mask": "yes"}, r"mask='yes' is not known; wanted allowed, blocked or additive\."),
    ],
)
def test_a_refusal_says_what_was_wrong_and_what_to_do(thing, options, message):
    with pytest.raises(RegardError, match=message):
        examine(thing, **options)


def test_what_cannot_be_called_is_not_examined_and_says_what_to_do():
    found = examine(lambda q, k, v: None)
    assert found.verdict == "not examined"
    assert "it returned NoneType and no tensor" in found.unexamined[0]
    assert "Name its layout with layout=" in found.unexamined[0]
    found = examine(nn.CosineSimilarity())
    assert found.verdict == "not examined"
    assert "CosineSimilarity could not be called on a (2, 6, 1) tensor" in found.unexamined[0]


def test_a_module_in_which_no_token_reaches_another_is_no_attention():
    assert examine(nn.Linear(8, 8)).codes == ("scores-unused",)


def test_an_error_that_no_input_would_mend_is_a_finding():
    found = examine(lambda q, k, v: 1 / 0)
    assert found.codes == ("raises",)
    assert found.findings[0].evidence == "always ZeroDivisionError: division by zero"


def test_a_row_with_nothing_to_attend_to_is_a_note_and_the_advice_leads_to_a_clean_bill():
    def attention(q, k, v, mask=None):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(-1) @ v

    def mended(q, k, v, mask=None):
        scores = q @ k.mT * q.shape[-1] ** -0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
        weights = weights if mask is None else weights.masked_fill(~mask.any(-1, keepdim=True), 0)
        return weights @ v

    found = examine(attention)
    assert found.healthy
    assert any("set their rows to 0 after softmax" in note for note in found.notes)
    assert examine(mended).healthy


def test_causal_exercises_the_flag_or_the_mask_whichever_there_is():
    def flagged(q, k, v, is_causal=False):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    assert examine(flagged, causal=True).healthy
    assert examine(with_mask, causal=True).healthy
    assert examine(lambda q, k, v, is_causal=False: plain(q, k, v), causal=True).codes == ("causal-leak",)


def test_a_finding_shows_a_small_input_expected_got_the_line_and_the_users_names():
    def attention(Q, K, V):
        return (Q @ K.mT).softmax(-1) @ V

    found = examine(attention).findings[0]
    assert found.example["input"].startswith("1 head, 2 tokens, plain: Q = [[")
    assert found.example["expected"] != found.example["got"]
    assert found.line.endswith("return (Q @ K.mT).softmax(-1) @ V")
    assert found.line.startswith("test_examine.py:")
    assert found.fix == "weights = (Q @ K.mT * Q.shape[-1] ** -0.5).softmax(-1)"


def test_a_finding_about_a_module_names_its_projections():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = 2
            self.lin_q, self.lin_k, self.lin_v, self.fc = (nn.Linear(8, 8) for _ in range(4))

        def forward(self, tokens):
            b, n, c = tokens.shape
            layers = (self.lin_q, self.lin_k, self.lin_v)
            q, k, v = (f(tokens).view(b, n, 2, -1).transpose(1, 2) for f in layers)
            return self.fc(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))

    found = examine(Attention()).findings[0]
    assert found.code == "missing-scale"
    assert "q from self.lin_q(tokens), k from self.lin_k(tokens)" in found.fix
    assert found.example["input"].startswith("2 tokens of torch.randn, plain, random weights")


def test_a_later_token_that_leaks_is_shown_with_two_tokens():
    found = examine(plain, causal=True).findings[0]
    assert found.example["input"] == "2 random tokens, plain: token 1 is changed"
    assert found.example["expected"].startswith("the output for token 0 stays [[")
