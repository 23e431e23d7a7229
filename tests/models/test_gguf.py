"""GGUF files: the weights and the tokenizer of a tiny Llama, written as llama.cpp writes them, and read."""

from __future__ import annotations

import sys

import pytest
import torch

from regard.errors import RegardError
from regard.models import load_model, record

gguf = pytest.importorskip("gguf")
# gguf reads its file with numpy calls that numpy has begun to warn about.
pytestmark = pytest.mark.filterwarnings("ignore:::gguf", "ignore:::numpy", "ignore:::transformers")

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
LETTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)]


def paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows in the order of llama.cpp, which rotates neighbours where transformers rotates halves."""
    return weight.view(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def write_gguf(model, path, *, tokens: bool = True, architecture: str = "llama") -> None:
    config = model.config
    file = gguf.GGUFWriter(str(path), architecture)
    file.add_name("tiny")
    file.add_context_length(config.max_position_embeddings)
    file.add_block_count(config.num_hidden_layers)
    file.add_embedding_length(config.hidden_size)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(config.num_attention_heads)
    file.add_head_count_kv(config.num_key_value_heads)
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(config.vocab_size)
    if tokens:
        file.add_tokenizer_model("gpt2")
        file.add_token_list(["<s>", *LETTERS[:93], "Ġ", "ab"])
        file.add_token_merges(["a b"])
        file.add_bos_token_id(0)
    for name, weight in model.state_dict().items():
        file.add_tensor(*named(name, weight, config))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def named(name: str, weight: torch.Tensor, config) -> tuple:
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    whole["lm_head.weight"] = "output.weight"
    if name in whole:
        return whole[name], weight.numpy()
    _, _, block, *part, _ = name.split(".")
    inner = ".".join(part)
    if inner in ("self_attn.q_proj", "self_attn.k_proj"):
        heads = config.num_attention_heads if "q_proj" in inner else config.num_key_value_heads
        weight = paired(weight, heads)
    return f"blk.{block}.{NAMES[inner]}.weight", weight.contiguous().numpy()


@pytest.fixture
def file(llama, tmp_path):
    write_gguf(llama, tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


def test_a_gguf_file_gives_the_model_it_was_written_from(file, llama, ids):
    model, _ = load_model(file)
    assert type(model) is type(llama)
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, llama(ids).logits, atol=1e-5)


def test_the_tokenizer_of_a_gguf_file_reads_text(file):
    recording = record(load_model(file), "cab")
    assert "".join(token.text for token in recording.tokens).endswith("cab")
    assert recording.maps[1].shape[1] == 4


def test_a_recording_of_a_gguf_file_is_named_after_the_file_and_compares_with_the_folders(
    file, llama, tmp_path, ids
):
    llama.save_pretrained(tmp_path / "folder")
    folder = type(llama).from_pretrained(tmp_path / "folder")
    of_file, of_folder = record(load_model(file).model, ids), record(folder, ids)
    assert of_file.model.name == str(file)
    assert of_file.model.label == "tiny.gguf"
    assert of_file.model.fingerprint == of_folder.model.fingerprint
    of_file.check_model(folder)
    folder.lm_head.weight.data += 1
    assert record(folder, ids).model.fingerprint != of_file.model.fingerprint


def test_a_gguf_file_is_parsed_once(file, monkeypatch):
    parsed = []
    build = gguf.GGUFReader._build_fields
    monkeypatch.setattr(gguf.GGUFReader, "_build_fields", lambda *given: parsed.append(1) or build(*given))
    before = gguf.GGUFReader
    load_model(file)
    assert len(parsed) == 1
    assert gguf.GGUFReader is before


def test_a_gguf_file_in_a_folder_can_be_named(file, ids):
    model, _ = load_model(file.parent, gguf_file="tiny.gguf", dtype="bfloat16")
    assert model.dtype == torch.bfloat16


def test_a_gguf_file_without_a_tokenizer_says_so(llama, tmp_path):
    write_gguf(llama, tmp_path / "bare.gguf", tokens=False)
    with pytest.raises(RegardError, match=r"bare.gguf has a model but no tokenizer that can be loaded"):
        load_model(tmp_path / "bare.gguf")


def test_a_gguf_file_of_an_unknown_architecture_is_named(llama, tmp_path):
    write_gguf(llama, tmp_path / "odd.gguf", architecture="oddity")
    with pytest.raises(RegardError, match=r"odd.gguf cannot be read: .*architecture oddity is not supported"):
        load_model(tmp_path / "odd.gguf")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all" * 9])
def test_a_damaged_gguf_file_is_named(tmp_path, content):
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(RegardError, match=r"the model at .*x.gguf cannot be read: "):
        load_model(tmp_path / "x.gguf")


def test_a_cut_gguf_file_is_named(file):
    file.write_bytes(file.read_bytes()[:-999])
    with pytest.raises(RegardError, match=r"the model at .*tiny.gguf cannot be (read|loaded): "):
        load_model(file)


def test_without_the_gguf_package_the_error_says_what_to_install(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(RegardError, match=r"tiny.gguf needs the gguf package.* pip install 'regard\[gguf\]'"):
        load_model(file)
