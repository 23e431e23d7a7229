"""`record` does the whole job: tokens, context, memory, disk, progress, and an end before its time."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from processes import started
from regard import ColumnMass, Entropy
from regard.errors import RegardError
from regard.models import LoadedModel, Recording, progress, record, watch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(["<unk>", "a", "b", "c", "d"])}
    built = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=built, unk_token="<unk>")


def words(n: int) -> str:
    return " ".join("abcd"[(i * i + i // 3) % 4] for i in range(n))


def interrupt_after(layers: int):
    """A progress that presses Ctrl-C once so many layers are done."""

    def tell(done: int, total: int) -> None:
        if done == layers:
            raise KeyboardInterrupt

    return tell


def test_a_text_is_recorded_with_its_words_and_statistics(llama, tokenizer):
    recording = record(LoadedModel(llama, tokenizer), "a  b c", stats=[Entropy(), ColumnMass()])
    assert [token.text for token in recording.tokens] == ["a", "b", "c"]
    assert [token.start for token in recording.tokens] == [0, 3, 5]
    assert recording.text == "a  b c"
    assert recording.layers[1].column_mass.shape == (1, 4, 3)


def test_a_recording_is_what_watching_the_same_tokens_gives(llama, ids):
    with torch.no_grad(), watch(llama) as expected:
        llama(ids)
    recording = record(llama, ids)
    assert torch.equal(recording.token_ids["decoder"], ids)
    for layer in expected.layers:
        assert torch.equal(recording.maps[layer].dense(), expected.maps[layer].dense())
        assert torch.equal(recording.layers[layer].entropy, expected.layers[layer].entropy)


@pytest.mark.parametrize("given", [[5, 6, 7], torch.tensor([5, 6, 7]), torch.tensor([[5, 6, 7]])])
def test_token_ids_may_be_a_list_or_a_tensor(llama, given):
    assert record(llama, given).token_ids["decoder"].tolist() == [[5, 6, 7]]


def test_the_model_computes_one_row_of_logits_no_gradients_and_no_cache(llama, ids):
    found = []
    hook = llama.register_forward_hook(lambda module, args, out: found.append(out))
    record(llama, ids)
    hook.remove()
    assert found[0].logits.shape == (2, 1, 96)
    assert not found[0].logits.requires_grad
    assert found[0].past_key_values is None


def test_an_encoder_decoder_reads_the_text_with_its_encoder(t5, ids):
    recording = record(t5, ids)
    assert recording.encoder.maps[1].shape == (2, 4, 13, 13)
    assert recording.cross.maps[1].shape == (2, 4, 1, 13)


def test_an_encoder_alone_is_recorded_too(ids):
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=96, **sizes)).eval()
    assert record(bert, ids).maps[1].shape == (2, 4, 13, 13)


# What is too long


def test_a_text_beyond_the_context_is_refused_with_both_remedies(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=7)
    with pytest.raises(RegardError, match=r"has 15 tokens .* too_long='truncate' .* too_long='windows'"):
        record((model, tokenizer), words(15), too_long="refuse")


def test_a_text_up_to_four_times_the_context_is_read_whole_with_one_warning(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=7)
    with pytest.warns(
        UserWarning, match="has 15 tokens and the model was trained to read 7: it goes"
    ) as said:
        recording = record((model, tokenizer), words(15))
    assert len(said) == 1
    assert recording.layers[0].mask_text == "Causal()"
    assert recording.maps[0].shape == (1, 4, 15, 15)


def test_a_text_longer_than_that_is_read_in_windows(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=7)
    with pytest.warns(
        UserWarning, match="29 tokens .* more than 4 times as many, so it is read in 5 windows"
    ):
        recording = record((model, tokenizer), words(29))
    assert recording.layers[0].mask_text == "Causal() & Documents(ids=<1 × 29>)"


def test_a_model_with_a_table_of_positions_reads_windows_beyond_it(tokenizer):
    sizes = {"vocab_size": 96, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 7}
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    length = 8
    with pytest.warns(UserWarning, match="more than it has positions for, so it is read in 2 windows"):
        recording = record((gpt2, tokenizer), words(length))
    assert recording.maps[0].shape[-1] == length


def test_a_truncated_recording_has_the_beginning_of_the_text_and_its_words(make_llama, tokenizer, tmp_path):
    model = make_llama(max_position_embeddings=7)
    record((model, tokenizer), words(15), too_long="truncate", store=tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert read.text == words(7)
    assert " ".join(token.text for token in read.tokens) == words(7)
    assert read.maps[0].shape == (1, 4, 7, 7)


def test_windows_make_one_recording_in_which_each_window_stands_alone(make_llama, tokenizer):
    model = make_llama(max_position_embeddings=7)
    recording = record((model, tokenizer), words(15), too_long="windows")
    assert " ".join(token.text for token in recording.tokens) == words(15)
    assert recording.layers[0].mask_text == "Causal() & Documents(ids=<1 × 15>)"
    whole = recording.maps[1].dense()
    for start, stop in ((0, 7), (7, 14), (14, 15)):
        alone = record(model, recording.token_ids["decoder"][:, start:stop]).maps[1].dense()
        assert torch.allclose(whole[:, :, start:stop, start:stop], alone, atol=1e-6)
        assert whole[:, :, start:stop, :start].abs().sum() == 0


def test_a_model_that_would_mix_its_windows_is_refused(ids):
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(vocab_size=96, max_position_embeddings=7, **sizes)
    bert = transformers.BertModel(config).eval()
    with pytest.raises(RegardError, match="BertModel cannot read a long text in windows"):
        record(bert, ids, too_long="windows")


# What cannot be read


def test_a_text_without_a_tokenizer_says_what_to_give(llama):
    with pytest.raises(RegardError, match=r"without its tokenizer. Give both, record\(\(model, tok"):
        record(llama, "a b")


def test_ids_the_model_does_not_know_are_refused(llama):
    with pytest.raises(RegardError, match=r"ids from 5 to 96; the model knows 0 to 95. Use the tok"):
        record(llama, [5, 96])
    with pytest.raises(RegardError, match=r"token ids from -1 to 5; the model knows 0 to 95"):
        record(llama, [5, -1])


def test_what_is_no_tokens_is_refused(llama, tokenizer):
    with pytest.raises(RegardError, match=r"type torch.float32 and shape \(2,\); wanted whole numbers"):
        record(llama, torch.ones(2))
    with pytest.raises(RegardError, match="the text has no tokens; give at least one word"):
        record((llama, tokenizer), "")
    with pytest.raises(RegardError, match="got a tuple of 3; wanted a model, or a model and its"):
        record((llama, tokenizer, None), "a")


# Progress


def test_progress_counts_every_layer_of_the_model(make_llama, ids):
    told = []
    record(make_llama(num_hidden_layers=3), ids, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_layers_that_are_not_watched_take_time_and_count(make_llama, ids):
    told = []
    record(make_llama(num_hidden_layers=3), ids, layers=[1], progress=lambda *at: told.append(at))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_progress_of_an_encoder_decoder_counts_all_three_stacks(t5, ids):
    told = []
    record(t5, ids, progress=lambda *at: told.append(at))
    assert told[0] == (0, 6)
    assert told[-1] == (6, 6)


def test_progress_starts_again_with_each_generated_token(llama, ids):
    told = []
    with watch(llama, progress=lambda *at: told.append(at)):
        llama.generate(ids[:1], max_new_tokens=2, do_sample=False)
    assert told == [(0, 2), (1, 2), (2, 2)] * 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_in_a_terminal_shows_the_layers_and_ends_with_the_time(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    with progress("reading", file=screen) as tell:
        tell(1, 3)
        tell(3, 3)
    assert "reading" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "0:00:00" in screen.getvalue()


def test_a_bar_leaves_no_trace_in_a_log():
    log = io.StringIO()
    with progress("reading", file=log) as tell:
        tell(1, 3)
    assert log.getvalue().strip() == ""


# Ctrl-C


@pytest.mark.parametrize("layers", [1, 2])
def test_an_interrupt_leaves_a_partial_recording_with_its_words(make_llama, tokenizer, tmp_path, layers):
    model, path = make_llama(num_hidden_layers=3), tmp_path / "x.regard"
    with pytest.raises(KeyboardInterrupt):
        record((model, tokenizer), words(9), store=path, progress=interrupt_after(layers))
    partial = Recording.open(path)
    assert not partial.complete
    assert list(partial.layers) == list(range(layers))
    assert " ".join(token.text for token in partial.tokens) == words(9)
    whole = record((model, tokenizer), words(9))
    assert torch.equal(partial.maps[0].dense(), whole.maps[0].dense())
    assert model.config._attn_implementation == "eager"


def test_an_interrupted_recording_is_completed_from_where_it_stopped(make_llama, tokenizer, tmp_path):
    model, path = make_llama(num_hidden_layers=3), tmp_path / "x.regard"
    with pytest.raises(KeyboardInterrupt):
        record((model, tokenizer), words(9), store=path, progress=interrupt_after(2))
    before = {file.name: file.stat().st_mtime_ns for file in path.glob("*.safetensors")}
    record((model, tokenizer), words(9), store=path, resume=True)
    read, whole = Recording.open(path), record((model, tokenizer), words(9))
    assert read.complete
    assert {name: (path / name).stat().st_mtime_ns for name in before} == before
    for layer in whole.layers:
        # A layer that is there already is not observed again, and plain attention rounds otherwise.
        torch.testing.assert_close(read.maps[layer].dense(), whole.maps[layer].dense())
    assert read.tokens == whole.tokens


def test_an_interrupt_before_the_first_layer_leaves_what_opens_and_is_empty(llama, ids, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        record(llama, ids, store=tmp_path / "x.regard", progress=interrupt_after(0))
    partial = Recording.open(tmp_path / "x.regard")
    assert not partial.complete
    assert partial.all_layers == []


def test_an_error_before_the_first_layer_leaves_nothing(llama, ids, tmp_path):
    def fail(done: int, total: int) -> None:
        raise RuntimeError("nothing to do with regard")

    with pytest.raises(RuntimeError, match="nothing to do with regard"):
        record(llama, ids, store=tmp_path / "x.regard", progress=fail)
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_noticed_at_the_first_layer(llama, ids, tmp_path, monkeypatch):
    from regard.models import target

    monkeypatch.setattr(target, "free_bytes", lambda path: 10_000)
    with pytest.raises(RegardError, match=r"takes 18\.7 KB and 9\.8 KB are free at .*x.regard"):
        record(llama, ids, store=tmp_path / "x.regard")
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, signal, sys
import torch, transformers
from regard.models import record

# A shell that runs the tests in the background ignores SIGINT, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)
config = transformers.LlamaConfig(
    vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4
)
model = transformers.LlamaForCausalLM(config).eval()

def tell(done, total):
    print(done, flush=True)
    if done == 2:
        sys.stdin.readline()  # until the signal comes

record(model, list(range(3, 66)), store=sys.argv[1], progress=tell)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_a_real_ctrl_c_leaves_a_partial_recording(tmp_path):
    path = tmp_path / "x.regard"
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with started(sys.executable, "-c", INTERRUPTED, path, **pipes) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == "2":
                break
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
    assert child.returncode not in (0, None)
    assert "KeyboardInterrupt" in errors
    partial = Recording.open(path)
    assert not partial.complete
    assert list(partial.layers) == [0, 1]
    assert partial.maps[1].dense().shape == (1, 4, 63, 63)
