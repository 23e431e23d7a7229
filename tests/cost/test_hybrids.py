"""Models that are not built like Llama: hybrids, state-space layers, one key head, encoders, an index."""

from __future__ import annotations

import pytest

from regard.cost import HYBRIDS, cache_bytes, decode, from_config, parameters, prefill, preset
from regard.errors import ModelError

# name: bytes of cache for each token in bfloat16, bytes of state at any length, published parameters. What
# Mamba and the delta rule sum up is kept in float32, short convolutions and lightning attention in bfloat16.
PUBLISHED = {
    "roberta-base": (0, 0, 124_697_433),
    "starcoder": (40 * 2 * 128 * 2, 0, 15_517_456_384),
    "jamba": (4 * 2 * 8 * 128 * 2, 28 * (8192 * 16 * 4 + 8192 * 4 * 2), 51_570_323_328),
    "nemotron-h-8b": (
        4 * 2 * 8 * 128 * 2,
        24 * (128 * 64 * 128 * 4 + (8192 + 2 * 8 * 128) * 4 * 2),
        8_100_852_736,
    ),
    "minimax-m1": (10 * 2 * 8 * 128 * 2, 70 * 64 * 128 * 128 * 2, 456_089_655_296),
    "qwen3-next-80b-a3b": (12 * 2 * 2 * 256 * 2, 36 * (32 * 128 * 128 * 4 + 8192 * 4 * 2), 79_674_391_296),
    "deepseek-v3.2": (61 * (512 + 64 + 128) * 2, 0, 671_877_929_216),
}


@pytest.fixture(scope="module")
def shapes():
    return {name: preset(name) for name in HYBRIDS}


def test_every_hybrid_is_compared():
    assert set(PUBLISHED) == set(HYBRIDS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_cache_state_and_parameters_are_as_published(name, shapes):
    shape, (per_token, state, total) = shapes[name], PUBLISHED[name]
    assert cache_bytes(shape, 1001) - cache_bytes(shape, 1000) == per_token
    assert cache_bytes(shape, 1000) - 1000 * per_token == state
    assert parameters(shape).total == total


@pytest.mark.parametrize(
    ("name", "issue"), [("qwen3-next-80b-a3b", 24_576), ("jamba", 16_384), ("starcoder", 20_480)]
)
def test_the_cache_of_a_token_in_bytes(name, issue, shapes):
    assert cache_bytes(shapes[name], 2) - cache_bytes(shapes[name], 1) == issue


def test_layers_are_named_by_what_they_keep(shapes):
    assert shapes["qwen3-next-80b-a3b"].kinds == {"state": 36, "full": 12}
    assert shapes["nemotron-h-8b"].kinds == {"state": 24, "none": 24, "full": 4}
    assert shapes["deepseek-v3.2"].kinds == {"sparse:2048": 61}


def test_roberta_is_an_encoder(shapes):
    assert not shapes["roberta-base"].decodes


def test_active_parameters_are_those_on_the_model_cards(shapes):
    # MiniMax counts 45.9 billion without either table; a token reads one row of the first.
    minimax = parameters(shapes["minimax-m1"])
    assert f"{(minimax.active_without_embedding - minimax.head) / 1e9:.1f}" == "45.9"
    assert f"{parameters(shapes['jamba']).active / 1e9:.0f}" == "12"


def test_a_state_takes_the_same_flops_for_every_token(shapes):
    shape = shapes["qwen3-next-80b-a3b"]
    # The delta rule reads the state, adds to it and reads it: three products with 32 matrices of 128 by 128.
    one = 36 * 3 * 2 * 32 * 128 * 128
    assert prefill(shape, 1).flops_by_part["state"] == one
    assert prefill(shape, 65).flops_by_part["state"] == 65 * one
    assert decode(shape, 100_000).flops_by_part["state"] == one


def test_a_state_without_the_delta_rule_is_added_to_and_read(shapes):
    # Two products of 8192 channels with 16 numbers each, in 28 layers.
    assert decode(shapes["jamba"], 1000).flops_by_part["state"] == 28 * 2 * 2 * 8192 * 16


def test_a_sparse_index_scores_every_key_and_attention_only_the_chosen(shapes):
    shape, n = shapes["deepseek-v3.2"], 100_000
    step = decode(shape, n).flops_by_part
    # 64 scores of 128 numbers each, and their weighted sum.
    assert step["index"] == 61 * 2 * 64 * (128 + 1) * n
    assert step["scores"] == 61 * 2 * 128 * (512 + 64) * 2048


GEMMA = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}


def test_a_nested_part_takes_what_it_leaves_out_from_its_family_and_says_so():
    found = from_config(GEMMA, name="gemma-3-4b")
    assert found == preset("gemma-3-4b")
    assert found.notes[1] == (
        "the config leaves these to transformers' defaults for gemma3_text: num_attention_heads 8, "
        "vocab_size 262208, num_key_value_heads 4"
    )


def test_a_config_with_fields_missing_names_them():
    lacking = {k: v for k, v in HYBRIDS["jamba"].items() if k not in ("hidden_size", "vocab_size")}
    with pytest.raises(ModelError, match="the config of jamba lacks hidden_size, vocab_size; add what"):
        from_config(lacking)
    with pytest.raises(ModelError, match="the config of x lacks num_key_value_heads"):
        from_config({k: v for k, v in HYBRIDS["jamba"].items() if k != "num_key_value_heads"}, name="x")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("vit", "vit has no vocab_size: it does not read tokens of text, and is not counted"),
        ("bart", "bart has an encoder and a decoder; of such models only T5 is counted"),
        ("longformer", "transformers cannot run LongformerModel without its weights"),
    ],
)
def test_what_is_not_counted_is_refused_with_the_reason(kind, message):
    from transformers import CONFIG_MAPPING

    with pytest.raises(ModelError, match=message):
        from_config(CONFIG_MAPPING[kind]())


def test_counting_leaves_the_config_alone():
    from transformers import JambaConfig

    config = JambaConfig(num_hidden_layers=8, hidden_size=64, intermediate_size=96, vocab_size=99)
    before = config.to_dict()
    from_config(config)
    assert config.to_dict() == before


def test_a_type_of_its_own_is_counted_as_the_class_it_names_and_says_so():
    config = HYBRIDS["deepseek-v3.2"] | {"model_type": "my_k2", "architectures": ["DeepseekV3ForCausalLM"]}
    found = from_config(config, name="my-k2")
    assert found.notes == ("my_k2 is counted as deepseek_v3 of transformers",)
    assert cache_bytes(found, 2) - cache_bytes(found, 1) == 61 * (512 + 64) * 2
    with pytest.raises(ModelError, match="model type 'my_k2' is known neither to regard nor to transformers"):
        from_config(config | {"architectures": ["MyK2ForCausalLM"]}, name="my-k2")


def test_a_size_under_another_name_that_its_family_reads_is_not_missing():
    # BLOOM's files of 2022 say n_embed; the 12,288 of this LFM2 are also its family's default.
    bloom = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}
    assert parameters(from_config({**bloom, "vocab_size": 250880})).total == 559_214_592
    lfm2 = {
        "model_type": "lfm2",
        "block_ff_dim": 12288,
        "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "vocab_size": 65536,
    }
    found = from_config(lfm2)
    assert (parameters(found).total, found.kinds) == (1_170_340_608, {"state": 10, "full": 6})
    with pytest.raises(ModelError, match="the config of lfm2 lacks intermediate_size;"):
        from_config({name: value for name, value in lfm2.items() if name != "block_ff_dim"})


def test_a_model_of_states_alone_keeps_nothing_for_a_token():
    mamba = {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280}
    found = from_config({**mamba, "intermediate_size": 1536, "state_size": 16})
    assert (parameters(found).total, found.kinds) == (129_135_360, {"state": 24})
    assert cache_bytes(found, 1) == cache_bytes(found, 9999) == 24 * (1536 * 16 * 4 + 1536 * 4 * 2)


def test_a_config_object_knows_its_defaults():
    from transformers import MllamaConfig, NemotronHConfig

    assert parameters(from_config(NemotronHConfig())).total == 1_968_355_712
    assert from_config(MllamaConfig()).kinds == {"full": 32, "none": 8}


@pytest.mark.parametrize("kind", ["llama4", "mllama", "llava"])
def test_a_model_of_text_and_images_without_its_text_part_lacks_it(kind):
    with pytest.raises(ModelError, match=f"the config of {kind} lacks text_config; add what is missing"):
        from_config({"model_type": kind})
