"""Cross-attention: queries are of one text and keys of another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from regard.models import LoadedModel, Passage, Recording, bundled, record, watch
from regard.viewer import Settings, create_app
from regard.viewer.causes import cut
from regard.viewer.jobs import ENDED
from regard.viewer.names import axis_names
from regard.viewer.session import Session
from viewer.samples import TOKENS, WORDS, saved, translated


def serve(made: Recording, tmp_path: Path) -> TestClient:
    path = saved(made, tmp_path / "x.regard")
    return TestClient(create_app(Settings((path,), cache=tmp_path)), base_url="http://127.0.0.1")


@pytest.fixture
def client(tmp_path):
    with serve(translated(), tmp_path) as found:
        yield found


@pytest.fixture
def tokens(client):
    """The pieces and the text of one side of a stack."""
    name = client.get("/api/recordings").json()["default"]

    def ask(role: str, side: str) -> tuple[list[str], str]:
        said = client.get(f"/api/recordings/{name}/tokens?role={role}&side={side}").json()
        return said["pieces"], said["text"]

    return ask


def test_queries_are_the_decoders_tokens_and_keys_the_encoders(tokens):
    queries, written = tokens("cross", "queries")
    keys, read = tokens("cross", "keys")
    assert (queries[:6], len(queries)) == ([*TOKENS, TOKENS[0]], 23)
    assert (keys[:5], len(keys)) == ([*WORDS, WORDS[0]], 67)
    assert written.startswith("".join(TOKENS))
    assert read.startswith("".join(WORDS))


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_both_sides_of_self_attention_are_one_text(tokens, side):
    assert tokens("encoder", side)[0][:4] == WORDS
    assert tokens("decoder", side)[0][:5] == TOKENS


def test_a_side_that_does_not_exist_is_refused(client):
    name = client.get("/api/recordings").json()["default"]
    answer = client.get(f"/api/recordings/{name}/tokens?role=cross&side=values")
    assert answer.status_code == 422
    assert "'queries' or 'keys'" in answer.json()["error"]


def test_the_steps_of_a_query_name_both_texts(client):
    name = client.get("/api/recordings").json()["default"]
    said = client.get(f"/api/recordings/{name}/stacks/cross/layers/0/heads/1/steps?query=3").json()
    assert said["token"] == TOKENS[3]
    assert set(said["tokens"]) <= set(WORDS)


def tiny_t5(vocabulary: int):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=vocabulary, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4,
        decoder_start_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration._from_config(config, attn_implementation="eager").eval()


def test_the_text_that_a_t5_read_names_its_keys_on_disk_too(tmp_path):
    _, tokenizer = bundled()
    text = "The old dog sat down."
    made = record(LoadedModel(tiny_t5(len(tokenizer)), tokenizer), text)
    made.save(tmp_path / "t5.regard")
    for recording in (made, Recording.open(tmp_path / "t5.regard")):
        queries, keys = axis_names(recording, "cross", *recording.cross.maps[0].shape[2:])
        assert "".join(keys) == text
        assert queries == [tokenizer.decode([1])]
        assert recording.tokens_of("encoder")[0][2].start == text.index(keys[2])


def test_a_t5_writes_a_text_while_it_looks_at_another(tmp_path):
    _, tokenizer = bundled()
    session = Session(Settings(model=str(tmp_path / "t5"), cache=tmp_path))
    session.shelf.put("t5", LoadedModel(tiny_t5(len(tokenizer)), tokenizer))
    job = session.start_generate("The old dog sat down.", "t5", 5, 0.0, bound=False)
    while job.state not in ENDED:
        job.wait(len(job.events), 1)
    assert (job.state, job.error) == ("done", None)
    written = [event["token"] for event in job.events if "token" in event]
    made = session.library.get(job.result["recording"]).recording
    assert made.cross.maps[0].shape == (1, 4, 6, 7)
    queries, keys = axis_names(made, "cross", 6, 7)
    assert queries[1:] == written
    assert "".join(keys) == "The old dog sat down."
    session.close()


@pytest.mark.parametrize("stack", ["cross", "encoder", "decoder"])
def test_what_is_cut_is_of_the_stack_that_is_looked_at(stack):
    from regard.atlas import Edge, knockout

    _, tokenizer = bundled()
    loaded = LoadedModel(tiny_t5(len(tokenizer)), tokenizer)
    read, wrote = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.tensor([[1, 20, 21, 22]])
    with torch.no_grad(), watch(loaded.model) as recording:
        loaded.model(input_ids=read, decoder_input_ids=wrote)
    edge = {"layer": 0, "head": 2, "query": 2, "key": 1}
    asked = {"heads": [(0, 1)], "edges": [edge], "keys": [3], "at": 2, "instead": "zero", "stack": stack}
    said = cut(loaded, recording, asked)
    edges = [Edge(0, 2, 2, 1, stack), Edge(key=3, stack=stack)]
    at = -1 if stack == "encoder" else 2
    wanted = knockout(loaded.model, read, written=wrote, heads=[(stack, 0, 1)], edges=edges, at=at, top=10)
    assert said["kl"] == wanted.kl > 0
    assert said["at"] == wanted.at


def test_what_was_seen_or_heard_is_not_run_again_without_it(tmp_path):
    session = Session(Settings(cache=tmp_path))
    made = translated()
    made.note_passages("encoder", [[Passage("sound", 0, 60)]])
    entry = session.library.add(made, "heard")
    with TestClient(create_app(session=session), base_url="http://127.0.0.1") as client:
        answer = client.post(f"/api/recordings/{entry.id}/knockout", json={"heads": [[0, 0]]})
    assert answer.status_code == 409
    assert "which the recording does not hold" in answer.json()["error"]


def test_a_model_that_is_an_encoder_alone_names_its_tokens(tmp_path):
    transformers = pytest.importorskip("transformers")
    _, tokenizer = bundled()
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=4,
    )  # fmt: skip
    model = transformers.BertModel._from_config(config, attn_implementation="eager").eval()
    made = record(LoadedModel(model, tokenizer), "The old dog.")
    count = made.encoder.maps[0].shape[3]
    assert "".join(axis_names(made, "encoder", count, count)[1]) == "The old dog."
