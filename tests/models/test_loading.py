"""Models, tokenizers and texts from wherever they are."""

from __future__ import annotations

import io

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from regard.errors import RegardError
from regard.models import chat_text, context_length, encode, load_model, load_text, loading, watch


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerFast:
    built = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1, "b": 2, "c": 3}, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=built, unk_token="<unk>")


@pytest.fixture
def folder(llama, tokenizer, tmp_path):
    llama.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_gives_the_model_and_its_tokenizer(folder, llama):
    model, tokenizer = load_model(folder)
    assert type(model) is type(llama)
    assert not model.training
    assert tokenizer("a b")["input_ids"] == [1, 2]
    with watch(model) as recording:
        model(torch.tensor([[1, 2, 3]]))
    assert recording.model.name == str(folder)


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_the_dtype_can_be_chosen(folder, dtype):
    assert load_model(folder, dtype=dtype, device="cpu").model.dtype == torch.bfloat16


def test_a_device_map_is_handed_on(folder):
    pytest.importorskip("accelerate")
    assert load_model(folder, device_map="cpu").model.device == torch.device("cpu")


def test_a_spread_model_is_watched_like_any_other(folder):
    pytest.importorskip("accelerate")
    model, _ = load_model(folder, device_map={"": "cpu"})
    with watch(model) as recording:
        model(torch.tensor([[1, 2, 3]]))
    assert recording.maps[1].shape == (1, 4, 3, 3)


def test_an_unknown_folder_or_name_is_told_apart(tmp_path, monkeypatch):
    with pytest.raises(RegardError, match="nowhere does not exist; wanted a folder with a model"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(RegardError, match=r"nowhere.gguf does not exist; wanted a GGUF file"):
        load_model(tmp_path / "nowhere.gguf")
    with pytest.raises(RegardError, match=r"holds no config.json, so it is not a model"):
        load_model(tmp_path)


def test_a_name_that_the_hub_does_not_give_says_what_to_check(monkeypatch):
    import transformers

    def refuse(*args, **kwargs):
        raise OSError("x/nothing is not a valid model identifier.\nMore lines.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    monkeypatch.setattr(loading, "only_cached", lambda *_: False)
    message = r"'x/nothing' is neither a folder here nor .* \(x/nothing is not a valid model identifier\)"
    with pytest.raises(RegardError, match=message):
        load_model("x/nothing")


def test_a_name_on_the_hub_without_a_network_says_so(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    message = r"'x/nothing' is neither a folder here nor .* Check the spelling, the network and"
    with pytest.raises(RegardError, match=message):
        load_model("x/nothing")


def test_a_folder_is_read_without_a_network(folder, monkeypatch):
    import transformers

    asked = []
    real = transformers.AutoConfig.from_pretrained
    monkeypatch.setattr(
        transformers.AutoConfig,
        "from_pretrained",
        lambda *a, **k: asked.append(k["local_files_only"]) or real(*a, **k),
    )
    load_model(folder)
    assert asked
    assert all(asked)


def test_a_missing_tokenizer_is_named(llama, tmp_path):
    llama.save_pretrained(tmp_path / "model")
    with pytest.raises(RegardError, match="has a model but no tokenizer that can be loaded"):
        load_model(tmp_path / "model")


def test_impossible_options_are_refused(folder):
    with pytest.raises(RegardError, match="dtype is 'int8'; wanted a float type"):
        load_model(folder, dtype="int8")
    with pytest.raises(RegardError, match=r"got device='cpu' and device_map='auto'; give one of them"):
        load_model(folder, device="cpu", device_map="auto")


def test_a_text_comes_from_a_file_stdin_or_the_string_itself(tmp_path, monkeypatch):
    file = tmp_path / "alice.txt"
    file.write_text("Alice", encoding="utf-8")
    assert load_text(file) == load_text(str(file)) == "Alice"
    assert load_text("Alice was tired.") == "Alice was tired."
    assert load_text("word " * 5000) == "word " * 5000
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert load_text("-") == "from a pipe"


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(RegardError, match=r"nowhere.txt does not exist; wanted a text file, '-' for stdin"):
        load_text("nowhere.txt")
    with pytest.raises(RegardError, match=r"nowhere.txt cannot be read: No such file"):
        load_text(tmp_path / "nowhere.txt")
    (tmp_path / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RegardError, match=r"x.txt is not a UTF-8 text"):
        load_text(tmp_path / "x.txt")


def test_a_conversation_becomes_the_text_of_its_template(tokenizer):
    with pytest.raises(RegardError, match=f"{type(tokenizer).__name__} has no chat template"):
        chat_text(tokenizer, "a")
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert chat_text(tokenizer, "a b") == "[user] a b\n[assistant]"
    assert chat_text(tokenizer, [{"role": "system", "content": "c"}], answer=False) == "[system] c\n"


def test_a_text_longer_than_the_context_is_refused_cut_or_split(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=7)
    text = "a b c " * 5
    assert context_length(model) == 7
    message = (
        r"the text has 15 tokens and the model reads at most 7: 8 too many. Use too_long='truncate' for the "
    )
    with pytest.raises(RegardError, match=message + r"first 7, or too_long='windows' for 3 pieces"):
        encode(model, tokenizer, text)
    assert [piece.shape[1] for piece in encode(model, tokenizer, text, too_long="truncate")] == [7]
    pieces = encode(model, tokenizer, text, too_long="windows")
    assert [piece.shape[1] for piece in pieces] == [7, 7, 1]
    assert torch.cat(pieces, 1).tolist() == [[1, 2, 3] * 5]
    assert encode(model, tokenizer, "a b")[0].tolist() == [[1, 2]]


def test_what_cannot_be_encoded_is_refused(llama, tokenizer):
    with pytest.raises(RegardError, match="the text has no tokens"):
        encode(llama, tokenizer, "")
    with pytest.raises(RegardError, match="too_long is 'cut'; wanted one of 'extend', 'windows', 'truncate'"):
        encode(llama, tokenizer, "a", too_long="cut")


def test_a_model_without_an_end_reads_any_length(t5):
    assert context_length(t5) is None
