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


# Those that write, with a cache.
WRITES = {
    **{name: lambda name=name: tiny_model(name, "AutoModelForCausalLM") for name in (
        "bloom", "falcon", "mpt", "openai-gpt", "xglm", "gpt_neox_japanese", "doge", "deepseek_v32", "git",
    )},
    "gptj": lambda: hf.GPTJForCausalLM(hf.GPTJConfig(**GPT, rotary_dim=4)),
    "codegen": lambda: hf.CodeGenForCausalLM(hf.CodeGenConfig(**GPT, rotary_dim=4)),
    "gpt_neo": lambda: hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(vocab_size=96, hidden_size=32, num_layers=2, num_heads=4, **LOCAL)
    ),
}  # fmt: skip
PROMPT = torch.randint(3, 90, (2, 11), generator=torch.Generator().manual_seed(0))


def written(model: Any, padding: int, **options: Any) -> tuple[Any, Recording]:
    """What a model generates, with its maps, and the recording of the same generation."""
    model.generation_config.eos_token_id = None
    real = torch.ones_like(PROMPT)
    real[0, :padding] = 0
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": real, **options}
    expected = model.generate(PROMPT, **options, output_attentions=True, return_dict_in_generate=True)
    with watch(model, own_code=True) as recording:
        assert torch.equal(model.generate(PROMPT, **options), expected.sequences)
    return expected, recording


@torch.no_grad()
@pytest.mark.parametrize("padding", [0, 4], ids=["whole", "padded"])
@pytest.mark.parametrize("name", WRITES)
def test_maps_go_on_while_a_family_writes(name, padding, tmp_path):
    torch.manual_seed(0)
    expected, recording = written(WRITES[name]().eval(), padding)
    recording.save(tmp_path / "x.regard")
    stored = Recording.open(tmp_path / "x.regard")
    text = torch.ones(2, 15, dtype=torch.bool)
    text[0, :padding] = False
    for number, layer in recording.layers.items():
        steps = [step[number] for step in expected.attentions]
        # Without a cache every step returns all rows.
        rows = steps[-1:] if steps[-1].shape[2] > 1 else steps
        weights = torch.cat([torch.nn.functional.pad(x, (0, 15 - x.shape[-1])) for x in rows], 2)
        for found in (layer, stored.layers[number]):
            ours = found.map.dense().transpose(1, 2)
            torch.testing.assert_close(ours[text], weights.transpose(1, 2)[text], atol=2e-6, rtol=1e-4)
        entropy = torch.special.entr(weights.double()).sum(-1).transpose(1, 2)[text]
        ours = layer.entropy.double().transpose(1, 2)[text]
        torch.testing.assert_close(ours, entropy, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bloom", "gptj"])
def test_maps_end_where_beams_are_exchanged(name):
    torch.manual_seed(0)
    model = WRITES[name]().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    _, recording = written(model, 0, num_beams=3, max_new_tokens=12)
    layer = recording.layers[1]
    assert not layer.whole
    assert layer.rows == 22
    assert layer.map.shape == (6, 4, 11, 11)
    alone = model(PROMPT, output_attentions=True).attentions[1].repeat_interleave(3, 0)
    torch.testing.assert_close(layer.map.dense(), alone, atol=2e-6, rtol=1e-4)


@torch.no_grad()
def test_tokens_that_are_taken_back_leave_the_map():
    torch.manual_seed(0)
    model = WRITES["bloom"]().eval()
    options = {"attention_mask": torch.ones(1, 11), "max_new_tokens": 9, "do_sample": False}
    with watch(model) as recording:
        ids = model.generate(PROMPT[:1], prompt_lookup_num_tokens=3, **options)
    weights = model(ids, output_attentions=True).attentions
    for number, layer in recording.layers.items():
        # What the last pass guessed wrong is still there.
        assert layer.map.shape[2] >= 19
        found = layer.map.dense()[:, :, :19, :19]
        torch.testing.assert_close(found, weights[number][:, :, :19, :19], atol=2e-6, rtol=1e-4)


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
@pytest.mark.parametrize("text", [False, True], ids=["whole", "padded"])
def test_a_sink_of_every_query_takes_its_share(text):
    model = tiny_model("inkling2_text")
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    given = texts(model, padded=text)
    expected = model(**given, output_attentions=True)
    with watch(model) as recording:
        hidden = model(**given)[0]
    rows = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
    torch.testing.assert_close(hidden[rows], expected[0][rows], atol=1e-5, rtol=1e-4)
    for layer, weights in zip(recording.layers.values(), expected.attentions, strict=True):
        # The sinks' shares differ from query to query.
        assert weights.sum(-1)[:, :, 3:].std() > 0.01
        ours = layer.map.dense().transpose(1, 2)[rows]
        torch.testing.assert_close(ours, weights.transpose(1, 2)[rows], atol=2e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("text", [False, True], ids=["whole", "padded"])
def test_scores_that_weigh_two_things_are_one_map(text):
    torch.manual_seed(0)
    sizes = {**SMALL, "hidden_size": 48, "max_position_embeddings": 64}
    model = hf.LiltModel(hf.LiltConfig(**sizes, channel_shrink_ratio=2, max_2d_position_embeddings=64)).eval()
    corners = torch.randint(0, 60, (2, 21, 4)).sort(-1).values
    given = texts(model, padded=text) | {"bbox": corners}
    expected = model(**given, output_attentions=True)
    with watch(model) as recording:
        assert torch.equal(model(**given)[0], expected[0])
    rows = given.get("attention_mask", torch.ones_like(given["input_ids"])).bool()
    assert len(recording.layers) == 2
    for layer, weights in zip(recording.layers.values(), expected.attentions, strict=True):
        ours = layer.map.dense().transpose(1, 2)[rows]
        torch.testing.assert_close(ours, weights.transpose(1, 2)[rows], atol=2e-6, rtol=1e-4)


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
