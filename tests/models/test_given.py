"""What `record` takes: several texts, chats, what a tokenizer returned, files of either."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from regard import ColumnMass, Entropy
from regard.errors import ModelError
from regard.models import Recording, load_chat, load_text, record

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CHAT = [
    {"role": "system", "content": "a b"},
    {"role": "user", "content": "b c d"},
    {"role": "assistant", "content": "d"},
    {"role": "user", "content": "b"},
]
TEXTS = ["a b c d c b a", "d c", "b a d c b"]


@pytest.fixture
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    special = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
    words = {word: i for i, word in enumerate(["<unk>", "a", "b", "c", "d", *special])}
    built = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=built, unk_token="<unk>", pad_token="<unk>")
    found.chat_template = TEMPLATE
    return found


def bert() -> transformers.BertModel:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    torch.manual_seed(0)
    return transformers.BertModel(transformers.BertConfig(vocab_size=96, **sizes)).eval()


def assert_same(ours: Recording, alone: Recording) -> None:
    for stack in alone.stacks.values():
        for index, layer in stack.items():
            found = ours.stack(stack.role)[index]
            torch.testing.assert_close(found.map.dense(), layer.map.dense(), atol=1e-6, rtol=1e-4)
    for role, ids in alone.token_ids.items():
        assert torch.equal(ours.token_ids[role], ids)


@pytest.mark.parametrize("kind", ["llama", "bert", "t5"])
def test_each_text_of_a_batch_is_recorded_as_it_is_alone(kind, llama, t5, tokenizer, tmp_path):
    model = {"llama": llama, "t5": t5}.get(kind) or bert()
    whole = record((model, tokenizer), TEXTS, stats=[Entropy(), ColumnMass()], store=tmp_path / "x.regard")
    assert whole.texts == TEXTS
    read = whole.reader
    for opened in (whole, Recording.open(tmp_path / "x.regard")):
        for row, text in enumerate(TEXTS):
            ours, alone = opened.alone(row), record((model, tokenizer), text)
            assert_same(ours, alone)
            assert ours.tokens_of(read) == alone.tokens_of(read)
            assert ours.text == text
            for index, layer in alone.layers.items():
                torch.testing.assert_close(ours.layers[index].entropy, layer.entropy, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["llama", "bert"])
def test_what_a_tokenizer_padded_on_either_side_is_recorded_as_each_text_is_alone(
    kind, side, llama, tokenizer
):
    model = llama if kind == "llama" else bert()
    tokenizer.padding_side = side
    whole = record((model, tokenizer), tokenizer(TEXTS, padding=True, return_tensors="pt"))
    for row, text in enumerate(TEXTS):
        assert_same(whole.alone(row), record((model, tokenizer), text))


def test_a_chat_goes_through_the_template_and_says_who_said_what(llama, tokenizer, tmp_path):
    recording = record((llama, tokenizer), CHAT, store=tmp_path / "chat.regard")
    assert recording.text == tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert recording.tokens[-1].text == "<|assistant|>"
    for found in (recording, Recording.open(tmp_path / "chat.regard"), recording.alone(0)):
        said = [(p.name, [found.tokens[i].text for i in p.tokens]) for p in found.passages]
        wanted = [("system", "a b"), ("user", "b c d"), ("assistant", "d"), ("user", "b")]
        assert said == [(role, words.split()) for role, words in wanted]


def test_a_chat_in_which_the_model_spoke_last_ends_there(llama, tokenizer):
    recording = record((llama, tokenizer), CHAT[:3])
    assert [token.text for token in recording.tokens[-2:]] == ["d", "<|end|>"]


def test_chats_are_a_batch_too(llama, tokenizer):
    whole = record((llama, tokenizer), [CHAT, CHAT[1:2]])
    for row, chat in enumerate([CHAT, CHAT[1:2]]):
        alone = record((llama, tokenizer), chat)
        assert whole.alone(row).passages == alone.passages
        assert_same(whole.alone(row), alone)


def test_what_the_template_changed_has_no_name(llama, tokenizer):
    tokenizer.chat_template = TEMPLATE.replace("m.content", "m.content if m.role == 'user' else 'c c'")
    recording = record((llama, tokenizer), CHAT)
    assert [(p.name, len(p.tokens)) for p in recording.passages] == [("user", 3), ("user", 1)]


def test_a_text_that_is_cut_keeps_the_passages_that_are_left(make_llama, tokenizer):
    recording = record(
        (make_llama(max_position_embeddings=7), tokenizer), CHAT, too_long="truncate", layers=[0]
    )
    assert [(p.name, p.start, p.stop) for p in recording.passages] == [("system", 1, 3), ("user", 5, 7)]


def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path, tokenizer, llama):
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbfa b")
    assert load_text(tmp_path / "x.txt") == "a b"
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"messages": CHAT}).encode())
    assert load_chat(tmp_path / "x.json") == CHAT
    marked = record((llama, tokenizer), ["\ufeffa b", "a"], layers=[0])
    assert marked.texts == ["a b", "a"]
    assert torch.equal(
        marked.maps[0].dense(), record((llama, tokenizer), ["a b", "a"], layers=[0]).maps[0].dense()
    )


@pytest.mark.parametrize(("given", "says"), [
    ([{"role": "user"}], "message 0 of the chat is .*; wanted a dict with role and content"),
    (["a", 5], "a list of texts with 5 in it"),
    (["a", ""], "one of the texts has no tokens"),
    ([], "the text has no tokens"),
    ({"ids": [1]}, "record got ids; wanted input_ids"),
    ({"input_ids": [[1, 2], [3, 4]], "attention_mask": [[1, 1], [0, 0]]}, "marks 1 of 2 texts"),
    (object(), "holds neither texts nor token ids"),
    (None, "nothing to read"),
])  # fmt: skip
def test_what_is_neither_text_nor_ids_is_refused(given, says, llama, tokenizer):
    with pytest.raises(ModelError, match=says):
        record((llama, tokenizer), given)


def test_a_template_that_refuses_a_chat_is_quoted(llama, tokenizer):
    tokenizer.chat_template = "{{ raise_exception('no system please') }}"
    with pytest.raises(ModelError, match="the chat template refuses these messages: no system please"):
        record((llama, tokenizer), CHAT)


def test_a_batch_is_not_read_in_windows(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=4)
    with pytest.raises(ModelError, match="Record them one by one, or use too_long='truncate'"):
        record((model, tokenizer), TEXTS, too_long="windows")
    cut = record((model, tokenizer), TEXTS, too_long="truncate")
    assert [token.text for token in cut.alone(2).tokens] == ["b", "a", "d", "c"]


@pytest.mark.parametrize(("content", "says"), [
    ("[", "is not JSON"), ("[]", "holds no chat"), ('{"a": 1}', "holds no chat"), (None, "cannot be read"),
])  # fmt: skip
def test_a_file_without_a_chat_is_named(content, says, tmp_path):
    if content is not None:
        (tmp_path / "x.json").write_text(content)
    with pytest.raises(ModelError, match=rf"x\.json {says}"):
        load_chat(tmp_path / "x.json")
