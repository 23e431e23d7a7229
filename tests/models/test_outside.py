"""Families that compute attention themselves: they run their own code, and every cell is theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

import regard
from models.families import inputs_of, tiny_model
from regard.errors import ModelError
from regard.models import Recording, watch
from regard.stats import ColumnMass, ColumnMax, ValueWeighted

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48,
}  # fmt: skip
GPT: dict[str, Any] = {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
RELATIVE = {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
LOCAL = {"attention_types": [[["global", "local"], 1]], "window_size": 8}

PROPHET: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 32, "num_encoder_layers": 1, "num_decoder_layers": 1,
    "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32, "max_position_embeddings": 64,
}  # fmt: skip
# Those whose default config cannot be shrunk by the names that most configs use.
MADE = {
    "gptj": lambda: hf.GPTJModel(hf.GPTJConfig(**GPT, rotary_dim=4)),
    "codegen": lambda: hf.CodeGenModel(hf.CodeGenConfig(**GPT, rotary_dim=4)),
    "gpt_neo": lambda: hf.GPTNeoModel(
        hf.GPTNeoConfig(vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, **LOCAL)
    ),
    "xlm": lambda: hf.XLMModel(hf.XLMConfig(vocab_size=96, emb_dim=32, n_layers=2, n_heads=4)),
    "deberta": lambda: hf.DebertaModel(hf.DebertaConfig(**RELATIVE, max_relative_positions=8)),
    "deberta-v2": lambda: hf.DebertaV2Model(hf.DebertaV2Config(**RELATIVE, position_buckets=8)),
    # Its fused path gives other outputs than the eager one, which returns maps.
    "falcon with alibi": lambda: hf.FalconModel._from_config(
        hf.FalconConfig(
            vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True
        ),
        attn_implementation="eager",
    ),
}
TINY = (
    "bloom", "falcon", "mpt", "mpnet", "xlnet", "openai-gpt", "luke", "megatron-bert", "rembert", "tapas",
    "roformer", "xglm", "visual_bert", "ibert", "canine", "git", "deepseek_v4", "doge",
)  # fmt: skip


@pytest.fixture(scope="module", params=[*MADE, *TINY])
def model(request):
    torch.manual_seed(0)
    return (MADE[request.param]() if request.param in MADE else tiny_model(request.param)).eval()


def texts(model: Any, padded: bool) -> dict[str, torch.Tensor]:
    given = inputs_of(model, padded=False)
    if padded:
        given["attention_mask"] = torch.ones_like(given["input_ids"])
        given["attention_mask"][1, 15:] = 0
    return given


@pytest.mark.share(2)
@torch.no_grad()
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_a_family_says_what_it_always_says_and_its_cells_are_its_own(model, padded):
    given = texts(model, padded)
    expected = model(**given)
    weights = model(**given, output_attentions=True).attentions
    with watch(model) as recording:
        output = model(**given)
    assert torch.equal(output[0], expected[0])
    assert len(recording.layers) == len(weights)
    whole = torch.ones_like(given["input_ids"])
    text = given.get("attention_mask", whole).bool()
    for layer, theirs in zip(recording.layers.values(), weights, strict=True):
        ours = layer.map.dense()
        # Queries that are padding attend to nothing here, and to anything there; canine's are not tokens.
        rows = text if ours.shape[2] == text.shape[1] else torch.ones(2, ours.shape[2], dtype=torch.bool)
        ours, theirs = (x.transpose(1, 2)[rows] for x in (ours, theirs))
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "make", [MADE["deberta-v2"], lambda: tiny_model("xlnet"), lambda: tiny_model("mpnet")]
)
def test_padding_is_no_query(make):
    torch.manual_seed(0)
    model = make().eval()
    given = texts(model, padded=True)
    with watch(model, stats=[ColumnMass(), ColumnMax()]) as batch:
        model(**given)
    with watch(model, stats=[ColumnMass(), ColumnMax()]) as alone:
        model(given["input_ids"][1:, :15])
    for layer in (0, 1):
        for name in ("column_mass", "column_max"):
            found, expected = (getattr(each.layers[layer], name) for each in (batch, alone))
            torch.testing.assert_close(found[1:, :, :15], expected, atol=1e-5, rtol=1e-4)
            assert not found[1, :, 15:].any()


@torch.no_grad()
def test_scores_with_several_terms_are_read_tile_by_tile_and_survive_the_disk(tmp_path):
    torch.manual_seed(0)
    model = MADE["deberta-v2"]().eval()
    given = texts(model, padded=True)
    with watch(model, store=tmp_path / "run.regard") as seen:
        model(**given)
    weights = model(**given, output_attentions=True).attentions
    stored = Recording.open(tmp_path / "run.regard")
    torch.testing.assert_close(stored.maps[1][0, 2, 3:9, :5], weights[1][0, 2, 3:9, :5])
    entropy = -torch.special.xlogy(weights[1][0], weights[1][0]).sum(-1)
    torch.testing.assert_close(seen.layers[1].entropy[0], entropy, atol=1e-5, rtol=1e-4)
    assert len(stored.atlas().heads) == 8


@torch.no_grad()
def test_generated_tokens_have_their_statistics():
    torch.manual_seed(0)
    model = hf.BloomForCausalLM(hf.BloomConfig(vocab_size=96, hidden_size=32, n_layer=2, n_head=4)).eval()
    ids = torch.arange(3, 14)[None]
    with watch(model) as recording:
        whole = model.generate(ids, max_new_tokens=4, do_sample=False)
    weights = model(whole, output_attentions=True).attentions
    entropy = -torch.special.xlogy(weights[1], weights[1]).sum(-1)
    torch.testing.assert_close(recording.layers[1].entropy, entropy[:, :, :-1], atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_any_model_can_be_watched_in_its_own_code(implementation):
    torch.manual_seed(0)
    model = hf.LlamaModel._from_config(
        hf.LlamaConfig(**SMALL, num_key_value_heads=2), attn_implementation=implementation
    ).eval()
    given = {"input_ids": torch.arange(3, 20)[None]}
    expected = model(**given)[0]
    with watch(model, own_code=True) as own:
        assert torch.equal(model(**given)[0], expected)
    with watch(model) as ours:
        model(**given)
    for layer in (0, 1):
        torch.testing.assert_close(own.maps[layer].dense(), ours.maps[layer].dense())
        torch.testing.assert_close(own.layers[layer].max_score.value, ours.layers[layer].max_score.value)


@torch.no_grad()
def test_attention_inside_a_module_of_torch_is_seen():
    torch.manual_seed(0)
    config = hf.WavLMConfig(
        **{**SMALL, "vocab_size": 32}, conv_dim=[16], conv_stride=[5], conv_kernel=[10],
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    model = hf.WavLMModel(config).eval()
    sound = torch.randn(1, 200, generator=torch.Generator().manual_seed(0))
    expected = model(sound)[0]
    with watch(model) as recording:
        assert torch.equal(model(sound)[0], expected)
    # The model returns the mean over its heads, for each of them.
    theirs = model(sound, output_attentions=True).attentions
    for layer, weights in zip(recording.layers.values(), theirs, strict=True):
        torch.testing.assert_close(layer.map.dense().mean(1), weights.mean(1), atol=2e-6, rtol=1e-4)


@torch.no_grad()
def test_statistics_that_read_values_are_refused():
    model = MADE["gptj"]().eval()
    with (
        pytest.raises(ModelError, match="value_weighted reads values, and of GPTJAttention, which computes"),
        watch(model, stats=[ValueWeighted()]),
    ):
        model(torch.arange(3, 9)[None])


@torch.no_grad()
@pytest.mark.parametrize(("make", "says"), [
    (
        lambda: hf.ProphetNetModel(hf.ProphetNetConfig(**PROPHET)),
        "ProphetNetNgramSelfAttention makes",
    ),
    (
        lambda: hf.NystromformerModel(
            hf.NystromformerConfig(**SMALL, num_landmarks=4, segment_means_seq_len=20)
        ),
        "NystromformerSelfAttention attends several times in one call",
    ),
])  # fmt: skip
def test_attention_in_blocks_or_by_approximation_is_refused(make, says):
    model = make().eval()
    with pytest.raises(ModelError, match=f"cannot be watched: {says}"), watch(model):
        model(**{name: ids[:, :20] for name, ids in inputs_of(model).items()})


@torch.no_grad()
@pytest.mark.parametrize("name", ["gpt_oss", "flint"])
def test_sinks_are_no_keys(name):
    model = tiny_model(name)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    given = texts(model, padded=False)
    weights = model(**given, output_attentions=True).attentions
    with watch(model) as ours:
        model(**given)
    with watch(model, own_code=True) as own:
        model(**given)
    for number, theirs in enumerate(weights):
        torch.testing.assert_close(own.maps[number].dense(), theirs, atol=2e-6, rtol=1e-4)
        for name in ("entropy", "sink_mass"):
            expected = getattr(ours.layers[number], name)
            torch.testing.assert_close(getattr(own.layers[number], name), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["mamba", "mobilenet_v2"])
def test_a_model_without_attention_says_so(name):
    model = tiny_model(name)
    with pytest.raises(ModelError, match="no attention was seen"), watch(model):
        model(**inputs_of(model))


def test_a_model_is_left_without_hooks():
    model = MADE["gptj"]()
    with watch(model), torch.no_grad():
        model(torch.arange(3, 9)[None])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not torch.overrides._get_current_function_mode_stack()
    assert torch.backends.mha.get_fastpath_enabled()


def test_cutting_needs_the_registry_and_says_so():
    model = hf.GPTJForCausalLM(hf.GPTJConfig(**GPT, rotary_dim=4)).eval()
    with pytest.raises(ModelError, match="compute attention themselves"):
        regard.knockout(model, torch.arange(3, 9), heads=[(0, 0)])
