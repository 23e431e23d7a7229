"""`importance`: every effect is that of one knock-out, and the correlation holds up."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atlas.small_models import MODELS, bert, gpt2, llama, printed, some_ids
from regard.atlas import effects, ranks
from regard.atlas.importance import importance
from regard.atlas.knockout import knockout
from regard.atlas.prefix import Prefix
from regard.atlas.ranks import spearman
from regard.errors import MapError, ModelError
from regard.models import bundled, sample_text, watch

N = 13


@pytest.mark.parametrize("name", MODELS)
def test_the_effect_of_each_head_is_that_of_its_knockout(name):
    model, ids = MODELS[name](), some_ids(N)
    found = importance(model, ids, at=9)
    heads = [(layer, head) for layer in range(3) for head in range(4)]
    assert [(effect.layer, effect.head) for effect in found.effects] == heads
    for effect in found.effects[::3]:
        cut = knockout(model, ids, heads=[(effect.layer, effect.head)], at=9)
        assert effect.kl == pytest.approx(cut.kl, rel=1e-3, abs=1e-6)
        if cut.loss_change is None:
            assert effect.loss_change is None
        else:
            assert effect.loss_change == pytest.approx(cut.loss_change, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_effect_of_each_key_is_that_of_its_knockout(name):
    model, ids = MODELS[name](), some_ids(N)
    found = importance(model, ids, "keys")
    assert [effect.key for effect in found.effects] == list(range(N))
    for effect in found.effects[::4]:
        cut = knockout(model, ids, keys=[effect.key])
        assert effect.kl == pytest.approx(cut.kl, rel=1e-3, abs=1e-6)
        assert (effect.loss_change is None) == (cut.loss_change is None)


def test_batches_of_any_size_give_the_same_effects(monkeypatch):
    model, ids = llama(), some_ids(N)
    whole = importance(model, ids)
    monkeypatch.setitem(importance.__globals__, "AT_ONCE", 3 * N)
    assert torch.allclose(importance(model, ids).kl, whole.kl, rtol=1e-3, atol=1e-6)


def test_variants_of_a_layer_start_at_that_layer():
    model, runs = llama(), [0, 0, 0]

    def counted(place):
        def count(module, args, output):
            runs[place] += 1

        return count

    for place, block in enumerate(model.model.layers):
        block.mlp.register_forward_hook(counted(place))
    importance(model, some_ids(N))
    # All blocks run in the probe, in the uncut run and in the one that is watched; then in the sweeps of the
    # layers up to them; and the last one more, to see that a late start is as good.
    assert [count - 3 for count in runs] == [1, 2, 3 + 1]


def test_a_model_that_passes_more_than_states_between_its_layers_starts_at_the_beginning(monkeypatch):
    model, ids = llama(), some_ids(N)
    expected = importance(model, ids)
    first, last, memory = model.model.layers[0], model.model.layers[2], {}
    first.mlp.register_forward_hook(lambda module, args, output: memory.update(state=output))
    # Where the first block is skipped there is nothing to remember, or it belongs to another batch.
    last.mlp.register_forward_pre_hook(lambda module, args: (args[0] + memory.pop("state", 7.0),))
    forgotten = []
    forget = Prefix.forget
    monkeypatch.setattr(Prefix, "forget", lambda self: (forgotten.append(True), forget(self)))
    found = importance(model, ids)
    assert forgotten == [True]
    assert found.effects[5].kl == pytest.approx(knockout(model, ids, heads=[(1, 1)]).kl, rel=1e-3, abs=1e-6)
    assert not torch.allclose(found.kl, expected.kl, rtol=1e-2)


def test_measures_of_heads_are_those_of_the_dense_map():
    model, ids = llama(), some_ids(N)
    found = importance(model, ids)
    with torch.no_grad(), watch(model) as recording:
        model(input_ids=ids)
    for effect in found.effects:
        weights = recording.maps[effect.layer].dense()[0, effect.head]
        assert effect.measures["weight"] == pytest.approx(float(weights.amax(-1).mean()), rel=1e-4)
        values = recording.maps[effect.layer].problem.v[0, effect.head // 2]
        w_o = model.model.layers[effect.layer].self_attn.o_proj.weight.detach()
        written = weights @ (values @ w_o[:, effect.head * 8 :][:, :8].T).norm(dim=-1)
        assert effect.measures["norm"] == pytest.approx(float(written.mean()), rel=1e-4)


def test_measures_of_keys_are_those_of_the_dense_map():
    model, ids = llama(), some_ids(N)
    found = importance(model, ids, "keys", at=10)
    with torch.no_grad(), watch(model) as recording:
        model(input_ids=ids)
    maps = torch.stack([seen.dense()[0] for seen in recording.maps.values()])
    assert len(found.effects) == 11
    assert torch.allclose(found.weights, maps[:, :, 10, :11].mean((0, 1)).double(), atol=1e-6)
    seers = torch.arange(N, 0, -1)
    assert torch.allclose(found.measure("mass"), (maps.sum(2) / seers).mean((0, 1))[:11].double(), atol=1e-6)
    assert set(found.effects[0].measures) == {"weight", "mass", "norm", "rollout"}


def test_later_keys_are_left_out_only_where_they_cannot_be_seen():
    assert len(importance(llama(), some_ids(N), "keys", at=4).effects) == 5
    assert len(importance(bert(), some_ids(N), "keys", at=4).effects) == N


def test_only_what_is_chosen_is_cut():
    found = importance(llama(), some_ids(N), only=[(2, 1), (0, 3)], loss=False)
    assert [effect.name for effect in found.effects] == ["layer 0 head 3", "layer 2 head 1"]
    assert found.loss_change is None
    keys = importance(llama(), some_ids(N), "keys", only=range(3, 6))
    assert [effect.name for effect in keys.effects] == ["key 3", "key 4", "key 5"]


def test_progress_ends_where_it_should():
    told = []
    importance(gpt2(), some_ids(N), progress=lambda done, total: told.append((done, total)))
    assert told == [(4, 12), (8, 12), (12, 12)]


def test_a_text_of_one_token_has_one_key_and_no_correlation():
    found = importance(llama(), [5], "keys")
    assert len(found.effects) == 1
    assert math.isnan(found.rank_correlation.rho)
    assert "ρ undefined (n = 1)" in repr(found)
    assert found.to_dict()["correlations"]["weight"]["kl"]["rho"] is None


def test_the_bundled_model_copies_with_its_induction_heads():
    model, tokenizer = bundled()
    text = "The heron was called Osgood. The badger said to the heron, whose name was Os"
    found = importance(model, text, tokenizer=tokenizer)
    heads = [(effect.layer, effect.head) for effect in found.strongest(3)]
    # The head that looks at the token before, and those that look at what followed it: a circuit.
    assert heads == [(4, 1), (8, 4), (5, 5)]
    keys = importance(model, text, "keys", tokenizer=tokenizer, only=[0, 8, 12])
    rollout, kl = keys.measure("rollout"), keys.kl
    # The first token takes the most of what rollout counts, and does the least of what counts.
    assert int(rollout.argmax()) == 0
    assert int(kl.argmax()) == 1
    assert keys.effects[1].text == "g"


def test_a_result_is_plain_data_and_a_table():
    found = importance(llama(), some_ids(N))
    data = json.loads(json.dumps(found.to_dict()))
    assert data["correlations"]["weight"]["kl"]["rho"] == found.rank_correlation.rho
    assert len(data["effects"]) == 12
    shown = printed(found.table(3))
    assert found.strongest(1)[0].name in shown
    assert f"weight with kl: {found.rank_correlation}" in shown
    assert shown.count("layer") == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"over": "layers"}, MapError, "over is 'layers'; wanted 'heads' or 'keys'."),
        ({"only": [(3, 0)]}, MapError, "there is no layer 3; the layers that attend are 0 to 2."),
        ({"only": [(0, 4)]}, MapError, "layer 0 has no head 4; its heads are 0 to 3."),
        ({"only": [3]}, MapError, "only holds 3; wanted heads as pairs (layer, head), as in only=[(6, 3)]."),
        (
            {"only": []},
            MapError,
            "only is empty; name what to cut, or leave it out to cut everything",
        ),
        ({"over": "keys", "only": [13]}, MapError, "keys 13 reaches outside the text; it has 13 tokens"),
        ({"at": -14}, MapError, "position -14 is outside the text; it has 13 tokens, so wanted -13 to 12."),
    ],
)
def test_a_sweep_that_cannot_be_made_is_refused(options, error, message):
    with pytest.raises(error) as caught:
        importance(llama(), some_ids(N), **options)
    assert message in str(caught.value)


def test_an_empty_text_is_refused():
    with pytest.raises(ModelError, match="the text has no tokens"):
        importance(llama(), [])


values = st.lists(st.integers(-4, 4), min_size=2, max_size=12)


@given(values)
def test_ranks_count_the_smaller_and_half_the_equal(numbers):
    x = torch.tensor(numbers, dtype=torch.float64)
    expected = [sum(b < a for b in numbers) + (sum(b == a for b in numbers) + 1) / 2 for a in numbers]
    assert ranks.ranks(x).tolist() == expected


@given(st.permutations(range(9)))
def test_without_ties_spearman_is_the_textbook_formula(order):
    gaps = sum((place - value) ** 2 for place, value in enumerate(order))
    rho = spearman(torch.arange(9.0), torch.tensor(order, dtype=torch.float32)).rho
    assert rho == pytest.approx(1 - 6 * gaps / (9 * 80))


def test_spearman_with_ties_is_pearson_of_the_shared_ranks():
    x, y = torch.tensor([1.0, 2, 2, 3, 9]), torch.tensor([2.0, 1, 4, 4, 4])
    both = torch.stack([torch.tensor([1, 2.5, 2.5, 4, 5]), torch.tensor([2.0, 1, 4, 4, 4])])
    assert spearman(x, y).rho == pytest.approx(float(torch.corrcoef(both)[0, 1]))


def test_the_chance_of_a_correlation_is_exact_enough():
    # Of the 24 orders of four things two correlate fully, one of them backwards.
    assert spearman(torch.arange(4.0), torch.arange(4.0)).p == pytest.approx(2 / 24, abs=0.01)
    assert spearman(torch.arange(40.0), torch.arange(40.0)).p == pytest.approx(1e-4)


def test_the_interval_holds_the_truth_as_often_as_it_says(monkeypatch):
    monkeypatch.setattr(ranks, "PERMUTATIONS", 9)
    hits = 0
    for _ in range(200):
        found = spearman(torch.randn(40), torch.randn(40))
        hits += found.low <= 0 <= found.high
    assert 180 <= hits <= 199


def test_a_constant_side_has_no_correlation():
    found = spearman(torch.ones(5), torch.arange(5.0))
    assert all(math.isnan(value) for value in (found.rho, found.low, found.high, found.p))
    assert str(found) == "ρ undefined (n = 5)"


def test_names_in_a_table_are_not_read_as_markup():
    effect = effects.Effect(None, None, 3, "[/b]", {"weight": 0.5}, 0.1, None)
    shown = printed(effects.Importance("keys", 9, 8, None, (effect, effect)).table())
    assert "key 3 '[/b]'" in shown


@pytest.mark.parametrize("over", ["heads", "keys"])
def test_sweeps_over_the_story_are_the_same_every_time(over):
    model, tokenizer = bundled()
    only = [(8, 4), (4, 1)] if over == "heads" else [0, 11]
    ids = tokenizer(sample_text(), return_tensors="pt")["input_ids"][:, :65]
    runs = [importance(model, ids, over, only=only, tokenizer=tokenizer) for _ in range(2)]
    assert runs[0] == runs[1]
