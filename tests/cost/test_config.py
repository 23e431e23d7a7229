"""Configs as people have them: short of fields, nested, of unknown families, in files."""

from __future__ import annotations

import json

import pytest

from regard.cost import Attention, FeedForward, ModelShape, from_config
from regard.errors import ModelError, ShapeError
from regard.models import hub

LLAMA = {
    "model_type": "llama",
    "hidden_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "intermediate_size": 88,
    "vocab_size": 151,
}


def test_missing_fields_are_named_all_at_once():
    with pytest.raises(ModelError) as caught:
        from_config({"model_type": "llama", "hidden_size": 48, "num_attention_heads": 4})
    said = str(caught.value)
    for field in (
        "num_hidden_layers (or n_layer, num_layers)",
        "intermediate_size (or ffn_dim",
        "vocab_size",
    ):
        assert field in said
    assert "hidden_size" not in said
    assert "transformers' own config object" in said


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_one_missing_field_is_named(field):
    with pytest.raises(ModelError, match=f"the config of x lacks {field}"):
        from_config({key: value for key, value in LLAMA.items() if key != field}, name="x")


@pytest.mark.parametrize("wrong", ["48", 0, -1, True, 4.5])
def test_a_size_that_is_no_whole_number_is_refused(wrong):
    with pytest.raises(ModelError, match=r"says hidden_size=.*; wanted a whole number, 1 or more"):
        from_config({**LLAMA, "hidden_size": wrong})


def test_heads_that_cannot_be_are_refused():
    with pytest.raises(ModelError, match="says num_key_value_heads=0; wanted a whole number, 1 or more"):
        from_config({**LLAMA, "num_key_value_heads": 0})
    with pytest.raises(ShapeError, match="4 heads and 3 kv heads; heads must be a multiple of kv heads"):
        from_config({**LLAMA, "num_key_value_heads": 3})


def test_a_file_and_its_folder_are_read_alike(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert from_config(tmp_path, name="x") == from_config(tmp_path / "config.json", name="x")
    assert from_config(str(tmp_path)).name == tmp_path.name


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not JSON"), ("[1]", "holds a list; wanted a model's")]
)
def test_a_file_that_is_no_config_is_refused(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=message):
        from_config(tmp_path)


def test_a_name_is_not_looked_up_unless_asked(monkeypatch):
    import transformers

    monkeypatch.setattr(
        transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("asked the hub")
    )
    with pytest.raises(ModelError, match=r"there is no config at some/model.*remote=True, or --remote"):
        from_config("some/model")


def test_a_name_is_looked_up_when_asked(monkeypatch):
    import transformers

    asked = []

    def answer(name, local_files_only):
        asked.append(name)
        return transformers.LlamaConfig(**LLAMA | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", answer)
    monkeypatch.setattr(hub, "only_cached", lambda name: False)
    found = from_config("some/model", remote=True)
    assert asked == ["some/model"]
    assert (found.name, found.d_model) == ("some/model", 48)


def test_what_the_hub_refuses_is_one_line(monkeypatch):
    import transformers

    def refuse(name, local_files_only):
        raise OSError("no such repository\nlong advice")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    monkeypatch.setattr(hub, "only_cached", lambda name: False)
    with pytest.raises(ModelError, match=r"no config of 'x/y' came from the hub: no such repository$"):
        from_config("x/y", remote=True)


def test_the_text_part_of_a_nested_config_is_counted():
    nested = {
        "model_type": "gemma3",
        "text_config": {**LLAMA, "model_type": "gemma3_text", "sliding_window": 8},
    }
    found = from_config(nested)
    assert found.kinds == {"window:8": 5, "full": 1}
    assert found.notes == (
        "only the text part of this model is counted",
        "the config leaves these to transformers' defaults for gemma3_text: num_key_value_heads 4",
    )


def test_an_unknown_family_is_refused():
    with pytest.raises(
        ModelError, match=r"model type 'newcomer' is known neither to regard nor to transformers 5\."
    ):
        from_config({**LLAMA, "model_type": "newcomer"})


def test_a_config_without_a_family_is_refused():
    with pytest.raises(ModelError, match="the config of the model lacks model_type"):
        from_config({key: value for key, value in LLAMA.items() if key != "model_type"})


def test_key_heads_are_named_where_the_family_has_a_number_of_its_own():
    with pytest.raises(ModelError, match="the config of qwen2 lacks num_key_value_heads; add"):
        from_config({**LLAMA, "model_type": "qwen2"})


def test_layer_types_must_be_as_many_as_layers():
    with pytest.raises(ModelError, match="has 6 layers and 2 layer_types"):
        from_config({**LLAMA, "layer_types": ["full_attention"] * 2})


def test_a_width_that_heads_do_not_divide_needs_head_dim():
    with pytest.raises(ModelError, match="hidden size 48 and 5 heads, and no head_dim"):
        from_config({**LLAMA, "num_attention_heads": 5})
    assert from_config({**LLAMA, "num_attention_heads": 5, "head_dim": 7}).layers[0].attention.head_dim == 7


def test_qwen_uses_its_window_only_where_it_is_switched_on():
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 8, "num_key_value_heads": 2}
    assert from_config(qwen).kinds == {"full": 6}
    switched = {**qwen, "use_sliding_window": True}
    assert from_config({**switched, "max_window_layers": 4}).kinds == {"full": 4, "window:8": 2}
    # transformers begins with layer 28 where nothing is said.
    assert from_config(switched).kinds == {"full": 6}


def test_impossible_shapes_are_refused():
    with pytest.raises(ShapeError, match="5 heads and 2 kv heads; heads must be a multiple of kv heads"):
        Attention(5, 2, 8)
    with pytest.raises(ShapeError, match="0 heads, 1 kv heads and head_dim 8; wanted 1 or more"):
        Attention(0, 1, 8)
    with pytest.raises(ShapeError, match="9 of 8 experts are active; wanted from 1 to 8"):
        FeedForward(8, experts=8, active=9)
    with pytest.raises(ShapeError, match="d_model 10 and 3 heads; d_model must be a multiple of heads"):
        ModelShape.uniform("x", layers=1, d_model=10, heads=3, ffn=8, vocab=9)
    with pytest.raises(ShapeError, match="0 layers; wanted 1 or more"):
        ModelShape.uniform("x", layers=0, d_model=12, heads=3, ffn=8, vocab=9)
