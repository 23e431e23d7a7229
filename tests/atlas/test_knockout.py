"""`knockout`: cutting an edge is editing the weights, for any model, any edge, and the model survives it."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atlas.small_models import MODELS, bloom, edited_weights, gpt2, llama, printed, some_ids
from effort import examples
from regard.atlas import reading
from regard.atlas.cuts import Uncut
from regard.atlas.cutting import LayerCut
from regard.atlas.edges import Edge
from regard.atlas.knockout import divergence, knockout
from regard.atlas.reading import read
from regard.errors import MapError, ModelError
from regard.masks import Causal
from regard.models import bundled, watch
from regard.models.call import AttentionCall
from regard.models.hook import watchers

N = 13
ALL = {layer: torch.ones(4, N, N, dtype=torch.bool) for layer in range(3)}


def without(*cuts: tuple) -> dict[int, torch.Tensor]:
    """Which weights stay, when those at (layer, head, query, key), each an index of a tensor, are cut."""
    allowed = {layer: flags.clone() for layer, flags in ALL.items()}
    for layer, *place in cuts:
        for number in range(3) if layer is None else [layer]:
            allowed[number][tuple(slice(None) if part is None else part for part in place)] = False
    return allowed


def reference(model, ids, allowed):
    with edited_weights(model, allowed):
        return model(input_ids=ids).logits.double()


def agrees(cut, before, after, at=-1):
    kl = (before[0, at].softmax(-1) * (before[0, at].log_softmax(-1) - after[0, at].log_softmax(-1))).sum()
    assert cut.kl == pytest.approx(float(kl), rel=2e-3, abs=1e-6)
    for one in (*cut.before, *cut.after):
        assert one.before == pytest.approx(float(before[0, at].softmax(-1)[one.id]), rel=1e-3, abs=1e-6)
        assert one.after == pytest.approx(float(after[0, at].softmax(-1)[one.id]), rel=1e-3, abs=1e-6)
        change = float(after[0, at, one.id] - before[0, at, one.id])
        assert one.logit_change == pytest.approx(change, rel=1e-3, abs=1e-4)


CUTS = {
    "one edge": ({"edges": [Edge(1, 2, -1, 3)]}, [(1, 2, N - 1, 3)]),
    "ranges": ({"edges": [Edge(0, range(1, 3), slice(5, 9), [0, 4])]},
               [(0, h, q, k) for h in (1, 2) for q in range(5, 9) for k in (0, 4)]),
    "an edge of every layer and head": ({"edges": [(None, None, 7, 2)]}, [(None, None, 7, 2)]),
    "everything one query sees": ({"edges": [Edge(2, 1, N - 1)]}, [(2, 1, N - 1, None)]),
    "a head": ({"heads": [(1, 3)]}, [(1, 3, None, None)]),
    "all heads of a layer": ({"heads": [(1, None)]}, [(1, None, None, None)]),
    "keys": ({"keys": [0, -2]}, [(None, None, None, 0), (None, None, None, N - 2)]),
    "a range of keys": ({"keys": range(2, 6)}, [(None, None, None, slice(2, 6))]),
    "all together": ({"heads": [(0, 0)], "edges": [Edge(2, 3, 12, 1), Edge(2, 3, 12, 4)], "keys": 5},
                     [(0, 0, None, None), (2, 3, 12, 1), (2, 3, 12, 4), (None, None, None, 5)]),
}  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("asked", "cuts"), CUTS.values(), ids=CUTS)
def test_a_cut_is_the_dense_weights_edited_and_renormalised(name, asked, cuts):
    model, ids = MODELS[name](), some_ids(N)
    before, after = reference(model, ids, {}), reference(model, ids, without(*cuts))
    agrees(knockout(model, ids, **asked), before, after)


layers = st.one_of(st.none(), st.integers(0, 2))
heads = st.one_of(st.none(), st.integers(0, 3))
spans = st.one_of(st.none(), st.integers(0, N - 1), st.tuples(st.integers(0, 5), st.integers(6, N)))


@examples(25)
@given(st.lists(st.tuples(layers, heads, spans, spans), min_size=1, max_size=4))
def test_any_edges_are_cut_as_the_dense_weights_are(edges):
    model, ids = llama(), some_ids(N)
    asked = [Edge(*(range(*part) if isinstance(part, tuple) else part for part in edge)) for edge in edges]
    cuts = [tuple(slice(*part) if isinstance(part, tuple) else part for part in edge) for edge in edges]
    before, after = reference(model, ids, {}), reference(model, ids, without(*cuts))
    agrees(knockout(model, ids, edges=asked, at=8), before, after, at=8)


def test_losses_are_those_of_the_edited_model():
    model, ids = llama(), some_ids(N)
    cut = knockout(model, ids, heads=[(1, 2)])
    for loss, allowed in ((cut.loss_before, {}), (cut.loss_after, without((1, 2, None, None)))):
        logits = reference(model, ids, allowed)[0, :-1]
        assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits, ids[0, 1:])), rel=1e-4)
    assert cut.loss_change == cut.loss_after - cut.loss_before


@torch.no_grad()
def test_blocking_everything_a_head_sees_is_zeroing_its_output():
    model, ids = llama(), some_ids(N)

    def zero(module, args):
        heads = args[0].clone().unflatten(-1, (4, 8))
        heads[..., 2, :] = 0.0
        return (heads.flatten(-2),)

    zeroed = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(zero)
    after = model(input_ids=ids).logits.double()
    zeroed.remove()
    before = model(input_ids=ids).logits.double()
    halves = [Edge(1, 2, None, slice(0, 5)), Edge(1, 2, None, slice(5, None))]
    for cut in (knockout(model, ids, heads=[(1, 2)]), knockout(model, ids, edges=halves)):
        agrees(cut, before, after)


def running_mean(outputs):
    return torch.stack([outputs[:, : i + 1].mean(1) for i in range(N)], 1)


def lots(outputs):
    drawn = torch.rand(N, generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    return outputs[:, [int(share * (i + 1)) for i, share in enumerate(drawn)]]


@torch.no_grad()
@pytest.mark.parametrize(("instead", "put"), [("mean", running_mean), ("resample", lots)])
def test_a_head_gives_its_mean_so_far_or_an_earlier_output_in_place_of_its_own(instead, put):
    model, ids = llama(), some_ids(N)

    def replaced(module, args):
        heads = args[0].clone().unflatten(-1, (4, 8))
        heads[..., 2, :] = put(heads[..., 2, :])
        return (heads.flatten(-2),)

    changed = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(replaced)
    after = model(input_ids=ids).logits.double()
    changed.remove()
    before = model(input_ids=ids).logits.double()
    assert not torch.allclose(before, after)
    told = []
    cut = knockout(model, ids, heads=[(1, 2)], instead=instead, progress=lambda *said: told.append(said))
    agrees(cut, before, after)
    assert told == [(done, 6) for done in range(1, 7)]


def test_an_unknown_substitute_is_refused():
    with pytest.raises(MapError, match="instead is 'nothing'; wanted one of 'zero', 'mean', 'resample'"):
        knockout(llama(), some_ids(N), heads=[(1, 2)], instead="nothing")


def test_a_sink_stays_when_all_keys_are_cut_and_gives_nothing():
    q, k, v = torch.randn(3, 1, 2, 7, 8).unbind()
    call = AttentionCall(q, k, v, Causal(), sink=torch.ones(2))
    nothing = ~Causal() & Causal()
    assert LayerCut(mask=nothing).attend(call).abs().max() == 0
    assert torch.equal(LayerCut(dead=torch.tensor([[True, True]])).attend(call), torch.zeros_like(v))


def test_the_last_token_cut_as_a_key_is_not_seen_by_itself():
    model, ids = llama(num_hidden_layers=1), some_ids(N)
    after = reference(model, ids, {0: without((None, None, None, N - 1))[0]})
    agrees(knockout(model, ids, keys=[-1]), reference(model, ids, {}), after)


def test_edges_into_the_future_change_nothing():
    cut = knockout(llama(), some_ids(N), edges=[Edge(query=3, key=range(4, N))])
    # The layer that is cut computes its attention under another mask, which may round otherwise.
    assert cut.kl == pytest.approx(0, abs=1e-12)
    assert cut.loss_change == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_in_pieces_are_the_models_own(name, monkeypatch):
    monkeypatch.setattr(reading, "CELLS", 96 * 4)
    model, ids = MODELS[name](), some_ids(N)
    logits = model(input_ids=ids).logits
    found = read(model, ids, [0, 5, N - 1])
    assert torch.allclose(found.logits, logits[:, [0, 5, N - 1]], atol=1e-5)
    wanted = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
    assert torch.allclose(found.losses[0], wanted, atol=1e-4)


def test_a_model_that_sees_the_future_has_no_loss():
    cut = knockout(MODELS["bert"](), some_ids(N), heads=[(0, 1)])
    assert cut.loss_before is cut.loss_after is cut.loss_change is None
    assert cut.kl > 0


def test_a_text_of_one_token_has_a_prediction_and_no_loss():
    cut = knockout(llama(), [7], heads=[(0, None)])
    assert cut.loss_change is None
    assert cut.target is None
    assert cut.kl > 0


def test_the_answer_names_the_likeliest_tokens_and_the_one_that_follows():
    model, tokenizer = bundled()
    text = "The heron was called Osgood. The badger said to the heron, whose name was Osg"
    ids = tokenizer(text, return_tensors="pt")
    cut = knockout(model, ids, heads=[(5, None), (8, None)], at=-2, tokenizer=tokenizer, top=3)
    assert [len(cut.before), len(cut.after), cut.target.text] == [3, 3, "g"]
    assert cut.before[0] == cut.target
    assert cut.target.before > 0.8 > 0.1 > cut.target.after
    assert cut.before[0].before >= cut.before[1].before
    assert cut.after[0].after >= cut.after[1].after
    assert cut == knockout(model, text, heads=[(5, None), (8, None)], at=-2, tokenizer=tokenizer, top=3)


def test_a_result_is_plain_data_and_a_table():
    cut = knockout(llama(), some_ids(N), heads=[(1, 2)], at=4)
    assert json.loads(json.dumps(cut.to_dict()))["kl"] == cut.kl
    assert cut.to_dict()["loss_change"] == cut.loss_change
    shown = printed(cut.table())
    assert f"#{cut.target.id} ←" in shown
    assert f"KL {cut.kl:.4f}" in shown


def test_the_divergence_of_a_prediction_from_itself_is_zero():
    logits = torch.randn(3, 7) * 50
    assert divergence(logits, logits).abs().max() == 0
    even, uneven = torch.zeros(2), torch.tensor([0.0, math.log(3)])
    assert float(divergence(even, uneven)) == pytest.approx(0.143841)


def test_masks_of_cuts_never_grow_with_the_square_of_the_text(monkeypatch):
    n, largest, allows = 6000, 0, Uncut.allows

    def counted(self, q, k):
        nonlocal largest
        allowed = allows(self, q, k)
        largest = max(largest, allowed.numel())
        return allowed

    monkeypatch.setattr(Uncut, "allows", counted)
    model = llama(num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, hidden_size=16)
    cut = knockout(model, some_ids(n), edges=[Edge(0, 1, range(5000, n), range(100, 200)), Edge(0, 0, -1, 7)])
    assert cut.kl > 0
    assert 0 < largest < n * n / 8


def state_of(model):
    modes = [module.training for module in model.modules()]
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    own = sum("forward" in vars(module) for module in model.modules())
    return model.config._attn_implementation, modes, hooks, own, len(watchers)


def test_the_model_is_as_it_was_afterwards():
    model = llama().train()
    model.model.layers[1].eval()
    before = state_of(model)
    knockout(model, some_ids(N), keys=[2])
    assert state_of(model) == before


def test_the_model_is_as_it_was_after_an_exception(monkeypatch):
    model = llama().train()
    before = state_of(model)
    monkeypatch.setattr(LayerCut, "attend", lambda self, call: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        knockout(model, some_ids(N), keys=[2])
    assert state_of(model) == before


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({}, MapError, "nothing was given to cut; give heads=[(layer, head)], edges="),
        ({"heads": [(3, 0)]}, MapError, "there is no layer 3; the layers that attend are 0 to 2."),
        ({"heads": [(1, 4)]}, MapError, "layer 1 has no head 4; its heads are 0 to 3."),
        ({"heads": [(1, -1)]}, MapError, "layer 1 has no head -1; its heads are 0 to 3."),
        ({"heads": [(1, range(2, 6))]}, MapError, "layer 1 has no head 4; its heads are 0 to 3."),
        ({"heads": [5]}, MapError, "heads holds 5; wanted pairs (layer, head), as in heads=[(6, 3)], or"),
        ({"edges": [(1, 2)]}, MapError, "edges holds (1, 2); wanted Edge(layer, head, query, key)"),
        ({"edges": [Edge(0, 0, 13, 0)]}, MapError, "query 13 reaches outside the text; it has 13 tokens"),
        ({"edges": [Edge(key=range(9, 20))]}, MapError, "key range(9, 20) reaches outside the text"),
        ({"edges": [Edge(key=slice(40, 50))]}, MapError, "holds none of the 13 tokens; wanted a part"),
        ({"edges": [Edge(query="last")]}, MapError, "query is 'last'; wanted a whole number, a range"),
        ({"keys": [1.5]}, MapError, "keys is [1.5]; wanted a whole number"),
        ({"keys": [99]}, MapError, "keys 99 reaches outside the text; it has 13 tokens"),
        ({"keys": [1], "at": 13}, MapError, "position 13 is outside the text; it has 13 tokens"),
    ],
)  # fmt: skip
def test_a_cut_that_cannot_be_made_is_refused_with_what_can(asked, error, message):
    with pytest.raises(error) as caught:
        knockout(llama(), some_ids(N), **asked)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "the text has no tokens; give at least one."),
        (torch.zeros(2, 3, dtype=torch.long), "tokens are int64 of shape (2, 3); wanted the ids of one text"),
        (torch.zeros(3), "tokens are float32 of shape (1, 3); wanted the ids of one text"),
        ([3, 96], "token ids go from 3 to 96; the model knows 0 to 95."),
        ("a text", "a text was given and no tokenizer; give tokenizer=, or token ids."),
    ],
)
def test_tokens_that_are_no_text_are_refused(tokens, message):
    with pytest.raises(ModelError) as caught:
        knockout(llama(), tokens, keys=[0])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bloom, "BloomForCausalLM cannot be watched: its layers compute attention themselves"),
        (lambda: torch.nn.Linear(2, 2), "Linear is no transformers model: its attention can be watched"),
    ],
)
def test_models_that_cannot_be_cut_say_why(make, message):
    with pytest.raises(ModelError) as caught:
        knockout(make(), some_ids(N), keys=[0])
    assert message in str(caught.value)


def test_a_model_that_is_being_watched_is_not_cut():
    model = gpt2()
    with (
        watch(model),
        pytest.raises(ModelError, match="GPT2LMHeadModel is being watched already; leave that block"),
    ):
        knockout(model, some_ids(N), keys=[0])
