"""Our policies as presses of kvpress, against kvpress' own."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
import transformers as hf

from regard.errors import ModelError

HAVE = find_spec("kvpress") is not None
needed = pytest.mark.skipif(
    not HAVE, reason="NO KVPRESS HERE, SO ITS PRESSES ARE NOT TESTED: it wants an environment of its own"
)


def kept(press, model, ids):
    """The keys each layer keeps, after a press has cut the cache of a prompt."""
    with torch.no_grad(), press(model):
        cache = model(input_ids=ids, use_cache=True).past_key_values
    return [layer.keys for layer in cache.layers]


@needed
@pytest.mark.parametrize("name", ["snapkv", "tova", "mean"])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_a_press_keeps_the_keys_that_kvpress_own_keeps(kind, name):
    import kvpress

    from regard.eviction import TOVA, MeanMass, SnapKV
    from regard.eviction.presses import PolicyPress

    theirs = {
        "snapkv": lambda: kvpress.SnapKVPress(0.5, window_size=16),
        "tova": lambda: kvpress.TOVAPress(0.5),
        "mean": lambda: kvpress.ObservedAttentionPress(0.5),
    }[name]()
    ours = PolicyPress(0.5, {"snapkv": SnapKV(window=16), "tova": TOVA(), "mean": MeanMass()}[name])
    torch.manual_seed(0)
    config = getattr(hf, f"{kind}Config")(
        vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, initializer_range=0.3,
    )  # fmt: skip
    model = getattr(hf, f"{kind}ForCausalLM")._from_config(config, attn_implementation="eager").eval()
    ids = torch.randint(3, 90, (2, 60), generator=torch.Generator().manual_seed(1))
    expected = kept(theirs, model, ids)
    model.set_attn_implementation("sdpa")
    found = kept(ours, model, ids)
    for own, wanted in zip(found, expected, strict=True):
        assert own.shape == wanted.shape == (2, 2, 30, 8)
        # The order in a cache means nothing: each key carries its position.
        torch.testing.assert_close(own.sort(2).values, wanted.sort(2).values, atol=1e-5, rtol=1e-4)


@needed
def test_a_policy_that_reads_twice_is_no_press():
    from regard.eviction import KVzip
    from regard.eviction.presses import PolicyPress

    with pytest.raises(ModelError, match="kvzip reads the prompt twice, and a press sees it once"):
        PolicyPress(0.5, KVzip())


@pytest.mark.skipif(HAVE, reason="kvpress is here")
def test_without_kvpress_the_error_says_how_to_install_it():
    from regard.eviction.presses import PolicyPress

    with pytest.raises(ModelError, match="pip install regard, then pip install kvpress"):
        PolicyPress(0.5)
