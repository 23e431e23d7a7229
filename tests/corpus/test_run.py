"""A run: the same bytes however it is done, nothing lost or counted twice, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from corpora import digests
from corpus import driver
from processes import forked
from regard import corpus
from regard.corpus import CorpusAtlas, Settings
from regard.corpus.engines import processes
from regard.corpus.reading import Reader
from regard.corpus.shard import DEATHS
from regard.corpus.store import Store
from regard.errors import CorpusError

SMALL = Settings(shard=4, batch=100)
READABLE = 23


@pytest.fixture(scope="module")
def undisturbed(tiny_model, stories, tmp_path_factory) -> Path:
    """The run in one process, from beginning to end."""
    folder = tmp_path_factory.mktemp("run") / "one.corpus"
    corpus.run(tiny_model, stories, folder, settings=SMALL)
    return folder


def test_every_document_is_counted_once(undisturbed):
    made = CorpusAtlas.open(undisturbed)
    assert made.documents == READABLE
    assert made.tokens == sum(1 + 37 * n % 90 for n in range(READABLE))
    assert [(entry["name"], entry["reason"].split(":")[0]) for entry in made.failed] == [
        ("stories.jsonl:6", "not JSON"),
        ("stories.jsonl:7", "no field 'text'; its fields are"),
        ("stories.jsonl:8", "field 'text' holds int, not a text"),
        ("stories.jsonl:10", "the text is empty"),
    ]
    assert int(made.state.sums["windows"]) == sum(-(-(1 + 37 * n % 90) // 64) for n in range(READABLE))
    assert all(head.measures["entropy"].documents == READABLE for head in made.heads)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_writes_the_same_bytes(tiny_model, stories, undisturbed, tmp_path, workers):
    folder = tmp_path / "many.corpus"
    corpus.run(tiny_model, stories, folder, engine="processes", workers=workers, settings=SMALL)
    assert digests(folder) == digests(undisturbed)


def test_parts_of_an_array_job_merge_to_the_same_bytes(tiny_model, stories, undisturbed, tmp_path):
    folder = tmp_path / "parts.corpus"
    for part in ("2/3", "3/3", "1/3"):
        assert corpus.run(tiny_model, stories, folder, part=part, settings=SMALL) is None
        with pytest.raises(CorpusError, match=r"is not complete yet; go on with regard corpus --resume"):
            CorpusAtlas.open(folder)
    corpus.merge(folder)
    assert digests(folder) == digests(undisturbed)


def test_merging_without_a_part_names_what_is_missing(tiny_model, stories, tmp_path):
    corpus.run(tiny_model, stories, tmp_path / "a", part="1/3", settings=SMALL)
    with pytest.raises(CorpusError, match=r"lacks 4 of its 7 shards \(the first is 1\)"):
        corpus.merge(tmp_path / "a")


def test_an_object_store_holds_the_same_bytes(tiny_model, stories, undisturbed):
    where = "memory://here/stories.corpus"
    corpus.run(tiny_model, stories, where, settings=SMALL)
    store = Store(where)
    for name in ("atlas.json", "atlas.safetensors", "plan.json", "shards/000003.json"):
        assert store.read(name) == (undisturbed / name).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(("workers", "most"), [(1, 1), (2, 4)])
def test_workers_killed_again_and_again_leave_the_same_bytes(
    tiny_model, stories, undisturbed, tmp_path, monkeypatch, workers, most
):
    """A worker is killed after every other batch; `python -m soak corpus` kills more."""
    draw, kills = random.Random(0), []
    taken = processes._take

    def take(process, answer, tell, starts):
        taken(process, answer, tell, starts)
        if len(kills) < most and ("at" in answer or draw.random() < 0.5):
            kills.append(answer)
            os.kill(process.process.pid, signal.SIGKILL)

    monkeypatch.setattr(processes, "_take", take)
    folder = tmp_path / "killed.corpus"
    made = corpus.run(tiny_model, stories, folder, engine="processes", workers=workers, settings=SMALL)
    assert len(kills) == most
    assert made.documents == READABLE
    assert digests(folder) == digests(undisturbed)


def test_a_driver_killed_and_resumed_leaves_the_same_bytes(tiny_model, stories, undisturbed, tmp_path):
    folder = tmp_path / "driver.corpus"
    for kill in range(2):
        with forked(driver.main, tiny_model, stories, folder, kill > 0) as process:
            # As soon as its next shard is there, it dies.
            while process.is_alive() and len(_shards(folder)) <= kill:
                time.sleep(0.002)
            process.kill()
    assert 2 <= len(_shards(folder)) < 7
    corpus.run(tiny_model, stories, folder, settings=SMALL, resume=True)
    assert digests(folder) == digests(undisturbed)


def _shards(folder: Path) -> list[Path]:
    return [file for file in (folder / "shards").glob("*.json") if not file.name.startswith(".")]


def test_drafts_of_killed_writers_are_taken_away(tiny_model, stories, undisturbed, tmp_path):
    folder = tmp_path / "a"
    for part in ("1/2", "2/2"):
        corpus.run(tiny_model, stories, folder, part=part, settings=SMALL)
    (folder / "reading" / ".000003.json.abc.tmp").write_text("{")
    (folder / "shards" / ".000003.json.abc.tmp").write_text("{")
    corpus.merge(folder)
    assert digests(folder) == digests(undisturbed)


def test_resuming_a_complete_run_changes_nothing(tiny_model, stories, undisturbed):
    before = digests(undisturbed)
    made = corpus.run(tiny_model, stories, undisturbed, settings=SMALL, resume=True)
    assert made.documents == READABLE
    assert digests(undisturbed) == before


def test_a_run_that_is_there_is_not_begun_again(tiny_model, stories, undisturbed):
    with pytest.raises(CorpusError, match=r"holds a corpus run already. Go on with it with resume=True"):
        corpus.run(tiny_model, stories, undisturbed, settings=SMALL)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(tiny_model, stories, undisturbed, tmp_path):
    def stop(done: int, total: int) -> None:
        if done > 9:
            raise KeyboardInterrupt

    folder = tmp_path / "stopped.corpus"
    with pytest.raises(KeyboardInterrupt):
        corpus.run(tiny_model, stories, folder, settings=SMALL, progress=stop)
    corpus.run(tiny_model, stories, folder, settings=SMALL, resume=True)
    assert digests(folder) == digests(undisturbed)


def test_another_model_tokenizer_setting_or_text_is_refused_with_the_difference(
    tiny_model, stories, undisturbed, tmp_path
):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    other = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    with torch.no_grad():
        other.model.layers[0].self_attn.q_proj.weight += 1
    more = AutoTokenizer.from_pretrained(tiny_model)
    more.add_tokens(["hen-house"])
    copy = tmp_path / "stories.jsonl"
    copy.write_text(stories.read_text() + '{"text": "the end"}\n')

    def resumed(pair, texts=stories, settings=SMALL):
        return corpus.run(pair, texts, undisturbed, settings=settings, resume=True)

    with pytest.raises(CorpusError, match=r"model fingerprint was '.*' and is '"):
        resumed((other, tokenizer))
    with pytest.raises(CorpusError, match=r"tokenizer was '.*' and is '"):
        resumed((model, more))
    with pytest.raises(CorpusError, match=r"settings batch was 100 and is 99"):
        resumed((model, tokenizer), settings=replace(SMALL, batch=99))
    with pytest.raises(CorpusError, match=r"documents was 27 and is 28; texts was"):
        resumed((model, tokenizer), texts=copy)


def test_another_statistic_is_refused(tiny_model, stories, undisturbed, monkeypatch):
    monkeypatch.setattr("regard.corpus.plan.MEASURES", ("entropy",))
    with pytest.raises(CorpusError, match=r"statistics measures was .* and is \['entropy'\]"):
        corpus.run(tiny_model, stories, undisturbed, settings=SMALL, resume=True)


def test_a_damaged_shard_is_noticed(tiny_model, stories, tmp_path):
    folder = tmp_path / "damaged"
    for part in ("1/2", "2/2"):
        corpus.run(tiny_model, stories, folder, part=part, settings=SMALL)
    file = folder / "shards" / "000002.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CorpusError, match=r"000002.safetensors is damaged"):
        corpus.merge(folder)


def test_a_batch_that_is_too_large_is_read_in_parts_and_a_document_too_large_is_listed(
    tiny_model, stories, undisturbed, tmp_path, monkeypatch
):
    """No pass of more than 80 tokens fits: batches do not, and documents of two windows do not."""
    read = Reader._maps

    def short_of_memory(self, texts):
        if sum(map(len, texts)) > 80:
            raise torch.OutOfMemoryError("tried to allocate 80 tokens")
        return read(self, texts)

    monkeypatch.setattr(Reader, "_maps", short_of_memory)
    made = corpus.run(tiny_model, stories, tmp_path / "a", settings=SMALL)
    lost = [entry for entry in made.failed if "out of memory" in entry["reason"]]
    large = [n for n in range(READABLE) if 1 + 37 * n % 90 > 80]
    assert [entry["reason"] for entry in lost] == [
        f"out of memory: tried to allocate 80 tokens ({1 + 37 * n % 90} tokens)" for n in large
    ]
    assert made.documents == READABLE - len(large)
    whole = CorpusAtlas.open(undisturbed)
    for one, other in zip(made.heads, whole.heads, strict=True):
        known = {entry["document"]: entry["strength"] for entry in other.top}
        both = [entry for entry in one.top if entry["document"] in known]
        assert both
        for entry in both:
            assert entry["strength"] == pytest.approx(known[entry["document"]], rel=1e-4)


def test_a_document_that_kills_its_readers_is_listed(tiny_model, stories, tmp_path):
    """What a worker was reading when it died stands on disk: so many deaths, and the text is given up."""
    folder = tmp_path / "fatal"
    corpus.run(tiny_model, stories, folder, part="7/7", settings=SMALL)
    store = Store(folder)
    deaths = {"0+2": DEATHS, "0+1": DEATHS}
    store.write_json("reading/000000.json", {"reading": "0+1", "deaths": deaths})
    made = corpus.run(tiny_model, stories, folder, settings=SMALL, resume=True)
    assert made.failed[0] == {
        "document": 0,
        "name": "stories.jsonl:1",
        "reason": f"the process that read it died {DEATHS + 1} times (1 tokens)",
    }
    assert made.documents == READABLE - 1


def test_workers_that_cannot_start_are_given_up(tiny_model, stories, tmp_path, monkeypatch):
    monkeypatch.setattr(processes.sys, "executable", "/bin/false")
    with pytest.raises(CorpusError, match=r"workers died 3 times while they loaded the model"):
        corpus.run(tiny_model, stories, tmp_path / "a", engine="processes", settings=SMALL)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "dask"}, "there is no engine 'dask'; engines are: local, processes, ray"),
        ({"workers": 0}, "workers is 0; wanted 1 or more"),
        ({"workers": 2}, "engine 'local' is this one process, and workers is 2"),
        ({"part": "0/4"}, "part is '0/4'; wanted one such as 3/64"),
        ({"part": "5/4"}, "part is '5/4'"),
        ({"resume": True}, "holds no corpus run to resume"),
        ({"settings": Settings(context=65)}, "context is 65; wanted 1 to 64 tokens"),
    ],
)
def test_impossible_options_are_refused(options, message, tiny_model, stories, tmp_path):
    with pytest.raises(CorpusError, match=message):
        corpus.run(tiny_model, stories, tmp_path / "a", **options)


def test_a_loaded_model_cannot_be_sent_to_other_processes(tmp_path, stories):
    with pytest.raises(CorpusError, match=r"Give its name or its folder"):
        corpus.run((object(), object()), stories, tmp_path / "a", engine="processes")


def test_something_else_in_the_folder_is_left_alone(tiny_model, stories, tmp_path):
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(CorpusError, match=r"something other than a corpus run \(diary.txt\)"):
        corpus.run(tiny_model, stories, tmp_path)


def test_progress_counts_documents_also_those_read_before(tiny_model, stories, tmp_path):
    corpus.run(tiny_model, stories, tmp_path / "a", part="1/2", settings=SMALL)
    said = []
    corpus.run(
        tiny_model, stories, tmp_path / "a", settings=SMALL, resume=True, progress=lambda *a: said.append(a)
    )
    assert said[0][0] > 12
    assert said[-1] == (27, 27)
    assert said == sorted(said)


def test_the_plan_names_no_worker_and_no_place(undisturbed):
    about = json.loads((undisturbed / "plan.json").read_text())
    assert set(about) == {
        "documents",
        "format",
        "layers",
        "model",
        "not_packed_because",
        "packed",
        "regard",
        "settings",
        "stack",
        "statistics",
        "texts",
        "tokenizer",
    }
    assert about["packed"] is True
