"""What is lost when keys leave a cache, against caches that are really cut."""

from __future__ import annotations

import json
import math

import pytest
import torch
import transformers

from regard.errors import ModelError, StatisticError
from regard.eviction import (
    POLICIES,
    TOVA,
    Eviction,
    KVzip,
    Policy,
    SinkWindow,
    SnapKV,
    evaluate,
    evaluate_needle,
)
from regard.models import bundled, sample_text

PROMPT, N = 37, 50


def llama(**changes):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, **changes,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.3
    )
    return transformers.GPT2LMHeadModel(config).eval()


def gemma():
    """Every other layer has a window, whose cache holds the last keys only."""
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, sliding_window=24, max_position_embeddings=128,
    )  # fmt: skip
    return transformers.Gemma2ForCausalLM(config).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 64, (1, N), generator=torch.Generator().manual_seed(1))


def with_the_cache_cut(model, ids, kept):
    """Logits of the continuation, read from a cache that has lost its rows; positions stay as they were."""
    with torch.no_grad():
        cache = model(input_ids=ids[:, :PROMPT], use_cache=True).past_key_values
        for layer in cache.layers:
            # The same keys in all heads: a cache is one tensor.
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        logits = []
        for place in range(PROMPT, N):
            given = {"input_ids": ids[:, place : place + 1], "position_ids": torch.tensor([[place]])}
            logits.append(model(**given, past_key_values=cache, use_cache=True).logits[0, 0])
    return torch.stack(logits).double()


@pytest.mark.parametrize("make", [llama, gpt2], ids=lambda make: make.__name__)
def test_the_loss_is_that_of_a_cache_without_the_rows(make, ids):
    model = make()
    lost = evaluate(model, ids, keep=[0.3], policies=[SinkWindow(sinks=2)], prompt=PROMPT)
    keep = round(0.3 * PROMPT)
    kept = [0, 1, *range(PROMPT - keep + 2, PROMPT)]
    with torch.no_grad():
        whole = model(input_ids=ids).logits[0, PROMPT:].double()
    cut = with_the_cache_cut(model, ids, kept)
    before, after = whole.log_softmax(-1), cut.log_softmax(-1)
    kl = (before.exp() * (before - after)).sum(-1).mean().item()
    targets = ids[0, PROMPT + 1 :]
    losses = [torch.nn.functional.nll_loss(side[:-1], targets).item() for side in (before, after)]
    (loss,) = lost.losses
    assert loss.kept == keep
    assert loss.kl == pytest.approx(kl, abs=1e-5)
    assert loss.loss_change == pytest.approx(losses[1] - losses[0], abs=1e-5)
    assert kl > 1e-3


@pytest.mark.parametrize("make", [llama, gpt2, gemma], ids=lambda make: make.__name__)
@pytest.mark.parametrize("policy", [*POLICIES, KVzip()], ids=lambda policy: policy.name)
def test_nothing_is_lost_where_all_keys_stay(make, policy, ids):
    (loss,) = evaluate(make(), ids, keep=[1.0], policies=[policy], prompt=PROMPT).losses
    assert loss.kl == pytest.approx(0, abs=1e-6)
    assert loss.mass_lost.max().item() == 0


@pytest.mark.parametrize("make", [llama, gemma], ids=lambda make: make.__name__)
def test_mass_lost_is_the_attention_that_went_to_keys_that_are_gone(make, ids):
    model = make()
    lost = evaluate(model, ids, keep=[0.2], policies=[TOVA()], prompt=PROMPT)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        maps = model(input_ids=ids, output_attentions=True).attentions
    for number, weights in enumerate(maps):
        last = weights[0, :, PROMPT - 1, :PROMPT].mean(0)
        last[-1] = torch.inf
        gone = torch.ones(PROMPT, dtype=torch.bool)
        gone[last.topk(round(0.2 * PROMPT)).indices] = False
        mass = weights[0, :, PROMPT:, :PROMPT][..., gone].sum(-1).mean(-1)
        torch.testing.assert_close(lost.losses[0].mass_lost[number], mass, atol=2e-5, rtol=1e-4)


def test_kvzip_scores_keys_by_a_second_reading_of_the_prompt(ids):
    model, seen = llama(), {}

    class Spy(KVzip):
        def scores(self, seen_now, room):
            seen[room.layer] = super().scores(seen_now, room)
            return seen[room.layer]

    evaluate(model, ids, keep=[0.5], policies=[Spy()], prompt=PROMPT)
    model.set_attn_implementation("eager")
    twice = torch.cat([ids[:, :PROMPT]] * 2, 1)
    with torch.no_grad():
        maps = model(input_ids=twice, output_attentions=True).attentions
    for layer, weights in enumerate(maps):
        tops = weights[0, :, PROMPT:, :PROMPT].amax(-2).view(2, 2, PROMPT).amax(1)
        torch.testing.assert_close(seen[layer], tops, atol=2e-5, rtol=1e-4)


def test_a_model_is_left_as_it_was(ids):
    model = llama()
    with torch.no_grad():
        before = model(input_ids=ids).logits
    evaluate(model, ids, keep=[0.2], policies=[SnapKV()], prompt=PROMPT)
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, before)


def test_results_are_tables_figures_and_plain_data(ids):
    steps = []
    lost = evaluate(
        llama(), ids, keep=[0.2, 0.6], prompt=PROMPT, progress=lambda done, total: steps.append((done, total))
    )
    assert isinstance(lost, Eviction)
    assert steps == [(done, 13) for done in range(1, 14)]
    assert lost.best(0.2).kl == min(loss.kl for loss in lost.losses if loss.keep == 0.2)
    assert lost.table().row_count == 12
    assert lost.heads("tova", 0.2, 5).row_count == 5
    drawn = lost.figure().axes
    assert drawn[0].get_ylabel() == "KL of the next token (nats)"
    heads = [axes for axes in drawn if axes.images]
    assert [axes.get_title().split()[0] for axes in heads] == list(lost.policies)
    shown = torch.as_tensor(heads[2].images[0].get_array()).float()
    torch.testing.assert_close(shown, lost.of("tova", 0.2).mass_lost)
    data = json.loads(json.dumps(lost.to_dict(), allow_nan=False))
    assert (data["prompt"], data["continuation"], len(data["losses"])) == (PROMPT, N - PROMPT, 12)


def test_with_one_share_the_figure_has_a_point_for_each_policy(ids):
    lost = evaluate(llama(), ids, keep=[0.25], policies=[SnapKV(), TOVA()], prompt=PROMPT)
    axes = lost.figure().axes[0]
    drawn = {round(float(line.get_xdata()[0]), 9) for line in axes.lines}
    assert drawn == {round(loss.kl, 9) for loss in lost.losses}
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [loss.policy for loss in sorted(lost.losses, key=lambda loss: -loss.kl)]


def test_a_head_measured_alone_is_the_only_one_that_loses_its_keys(ids):
    model = llama()
    lost = evaluate(model, ids, keep=[0.2, 0.5], policies=[SinkWindow(sinks=2)], prompt=PROMPT, heads=3)
    few, half = lost.of("sinks", 0.2), lost.of("sinks", 0.5)
    assert not half.heads
    masses = few.mass_lost.flatten().sort(descending=True).values[:3]
    assert [one.mass_lost for one in few.heads] == pytest.approx(masses.tolist())
    keep = round(0.2 * PROMPT)
    gone = torch.arange(2, PROMPT - keep + 2)
    with torch.no_grad():
        whole = model(input_ids=ids).logits[0, PROMPT:].double().log_softmax(-1)
    for one in few.heads:
        cut = with_one_head_masked(model, ids, one.layer, one.head, gone)
        kl = (whole.exp() * (whole - cut)).sum(-1).mean().item()
        assert one.kl == pytest.approx(kl, rel=1e-3, abs=1e-7)
        assert one.kl > 0
    shown = lost.heads("sinks", 0.2)
    assert [column.header for column in shown.columns] == ["head", "mass lost", "KL alone (nats)"]


def with_one_head_masked(model, ids, layer, head, gone):
    """Log-probabilities of the continuation, when one head's queries of it cannot see some keys."""

    def masked(module, q, k, v, mask, scaling, **kwargs):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = (q @ k.mT * scaling).masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)
        if module.layer_idx == layer:
            scores[:, head, PROMPT:, gone] = -torch.inf
        return (scores.softmax(-1) @ v).transpose(1, 2), None

    transformers.AttentionInterface.register("one_head_masked", masked)
    before = model.config._attn_implementation
    model.set_attn_implementation("one_head_masked")
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, PROMPT:].double()
    model.set_attn_implementation(before)
    return logits.log_softmax(-1)


def test_policies_of_one_name_are_measured_with_their_own_settings(ids):
    both = evaluate(llama(), ids, keep=[0.2], policies=[SnapKV(window=2), SnapKV(window=8)], prompt=PROMPT)
    assert both.policies == ("SnapKV(window=2, smooth=5)", "SnapKV(window=8, smooth=5)")
    for found, policy in zip(both.losses, [SnapKV(window=2), SnapKV(window=8)], strict=True):
        (alone,) = evaluate(llama(), ids, keep=[0.2], policies=[policy], prompt=PROMPT).losses
        assert found.kl == pytest.approx(alone.kl, rel=1e-6)
        assert torch.equal(found.mass_lost, alone.mass_lost)


def test_a_hidden_sentence_is_likelier_with_all_keys_than_with_few():
    found = evaluate_needle(*bundled(), depths=2, length=300, keep=[0.05, 1.0], policies=[SinkWindow()])
    few, every = found.of("sinks", 0.05), found.of("sinks", 1.0)
    assert every.answer is not None
    assert few.answer is not None
    assert every.answer > few.answer + 1
    assert every.found == found.found
    assert every.kl < 1e-6 < few.kl
    assert found.continuation < 40


def test_heads_of_a_needle_are_measured_alone_over_all_depths():
    found = evaluate_needle(*bundled(), depths=2, length=300, keep=[0.1], policies=[SinkWindow()], heads=2)
    loss = found.losses[0]
    assert len(loss.heads) == 2
    assert all(one.found in (0.0, 0.5, 1.0) and 0 <= one.kl < loss.kl for one in loss.heads)
    for one in loss.heads:
        place = found.layers.index(one.layer), one.head
        assert one.mass_lost == pytest.approx(loss.mass_lost[place].item(), rel=1e-5)


def test_a_policy_of_ones_own_is_measured_like_the_others(ids):
    class Even(Policy):
        def scores(self, seen, room):
            return (torch.arange(room.keys) % 2 == 0).float().expand(room.kv_heads, -1)

    (loss,) = evaluate(llama(), ids, keep=[0.5], policies=[Even()], prompt=PROMPT).losses
    assert loss.policy == "even"
    assert math.isfinite(loss.kl)


@pytest.mark.parametrize(("given", "says"), [
    ({"keep": [0.0]}, "above 0 and at most 1"),
    ({"keep": []}, "above 0 and at most 1"),
    ({"keep": [25]}, "above 0 and at most 1"),
    ({"heads": -1}, "heads is -1; wanted how many heads to measure alone, 0 or more"),
])  # fmt: skip
def test_shares_that_are_none_are_refused(given, says, ids):
    with pytest.raises(StatisticError, match=says):
        evaluate(llama(), ids, **given)


@pytest.mark.parametrize("prompt", [0, N, -3])
def test_a_prompt_that_leaves_nothing_to_say_is_refused(prompt, ids):
    with pytest.raises(ModelError, match=f"^prompt is {prompt}; the text has 50 tokens, so wanted 1 to 49"):
        evaluate(llama(), ids, prompt=prompt)


def test_a_model_without_a_cache_is_refused(ids):
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    with pytest.raises(ModelError, match="keeps no cache of keys and values, so there is nothing to evict"):
        evaluate(transformers.BertForMaskedLM(config), ids)


def test_a_prompt_too_long_to_be_read_twice_is_refused_by_kvzip():
    ids = torch.zeros(1, 100, dtype=torch.int64)
    with pytest.raises(
        ModelError, match="kvzip reads the prompt twice, 2 × 90 tokens, and the model reads at most 128"
    ):
        evaluate(llama(), ids, policies=[KVzip()], prompt=90)


def test_the_bundled_model_loses_less_the_more_keys_it_keeps():
    model, tokenizer = bundled()
    lost = evaluate(model, sample_text()[:2000], tokenizer=tokenizer, keep=[0.1, 0.5], policies=[SnapKV()])
    assert lost.best(0.5).kl < 0.7 * lost.best(0.1).kl
    assert lost.best(0.5).kl < 0.4
