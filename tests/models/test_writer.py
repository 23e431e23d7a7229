"""Writing behind the model: several layers at once, no more than fit, none called complete before it is."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from regard.errors import RecordingError
from regard.models import Recording, backlog, manifest, storage, watch, writer

LAYERS = 8


@pytest.fixture
def model(make_llama):
    return make_llama(num_hidden_layers=LAYERS)


def number_of(path) -> int:
    """The layer that a file belongs to."""
    return int(path.name.split("-")[2])


def writing(monkeypatch, before):
    """Call `before` with the layer's number in the thread that is about to write it."""
    real = storage._write_segment

    def write(tensors, path, *rest):
        before(number_of(path))
        return real(tensors, path, *rest)

    monkeypatch.setattr(storage, "_write_segment", write)


@pytest.mark.parametrize(("bytes_waiting", "most"), [(1 << 30, backlog.WORKERS), (0, 1)])
def test_a_slow_disk_makes_the_model_wait(model, ids, tmp_path, monkeypatch, bytes_waiting, most):
    held, real = [], writer.Writer.write

    def write(self, layer):
        real(self, layer)
        held.append(sum(x.loaded for x in self.recording.all_layers))

    monkeypatch.setattr(backlog, "WAITING", bytes_waiting)
    monkeypatch.setattr(writer.Writer, "write", write)
    writing(monkeypatch, lambda number: time.sleep(0.02))
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard"):
        model(ids)
    assert max(held) <= most
    assert len(held) == LAYERS


def test_layers_are_written_at_the_same_time(model, ids, tmp_path, monkeypatch):
    together = threading.Barrier(backlog.WORKERS, timeout=60)

    def meet(number):
        if number < backlog.WORKERS:
            together.wait()

    writing(monkeypatch, meet)
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard"):
        model(ids)
    assert Recording.open(tmp_path / "x.regard").complete


def test_layers_stand_in_the_order_in_which_they_ran(model, ids, tmp_path, monkeypatch):
    second = threading.Event()

    def first_waits(number):
        if number == 0:
            assert second.wait(60)
        if number == 2:
            second.set()

    writing(monkeypatch, first_waits)
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard") as live:
        model(ids)
    read = Recording.open(tmp_path / "x.regard")
    assert [layer.index for layer in read.all_layers] == list(range(LAYERS))
    assert [layer.index for layer in live.all_layers] == list(range(LAYERS))


def test_a_layer_that_fails_is_missing_among_later_ones_and_resumed(model, ids, tmp_path, monkeypatch):
    path, later = tmp_path / "x.regard", threading.Event()

    def second_fails_late(number):
        if number == 1:
            assert later.wait(60)
            raise OSError(28, "No space left on device")

    real = writer.write_manifest

    def write_manifest(file, about):
        real(file, about)
        if any(entry["site"]["index"] == 2 for entry in about["layers"]):
            later.set()

    with monkeypatch.context() as patched:
        writing(patched, second_fails_late)
        patched.setattr(writer, "write_manifest", write_manifest)
        with pytest.raises(RecordingError, match="No space left"), torch.no_grad(), watch(model, store=path):
            model(ids)
    partial = Recording.open(path)
    assert not partial.complete
    assert {0, 2} <= {*partial.layers} <= {0, 2, 3, 4, 5}
    with torch.no_grad(), watch(model, store=path, resume=True) as live:
        model(ids)
    read = Recording.open(path)
    assert read.complete
    assert [layer.index for layer in read.all_layers] == list(range(LAYERS))
    assert [layer.index for layer in live.all_layers] == list(range(LAYERS))


def test_an_error_of_the_model_keeps_the_layers_that_were_on_their_way(model, ids, tmp_path, monkeypatch):
    path = tmp_path / "x.regard"
    writing(monkeypatch, lambda number: time.sleep(0.02))

    def fails(*unused):
        raise ValueError("the model's own")

    model.model.layers[5].mlp.register_forward_pre_hook(fails)
    with pytest.raises(ValueError, match="the model's own"), torch.no_grad(), watch(model, store=path):
        model(ids)
    partial = Recording.open(path)
    assert not partial.complete
    assert not (path / manifest.COMPLETE).exists()
    assert list(partial.layers) == [0, 1, 2, 3, 4, 5]
    for layer in partial.all_layers:
        layer.map.dense()


def test_keys_and_values_are_written_once_for_each_key_head(make_llama, ids, tmp_path):
    model = make_llama(num_attention_heads=8, num_key_value_heads=2)
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard"):
        model(ids)
    first = Recording.open(tmp_path / "x.regard").layers[0].segments[0]
    assert (first.q.shape[1], first.k.shape[1], first.v.shape[1]) == (8, 2, 2)


def test_a_layer_that_waits_reads_as_it_was(model, ids, tmp_path, monkeypatch):
    with torch.no_grad(), watch(model) as expected:
        model(ids)
    done = threading.Event()
    writing(monkeypatch, lambda number: done.wait(60))
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard", layers=[0]) as live:
        model(ids)
        assert live.layers[0].loaded
        assert torch.equal(live.maps[0].dense(), expected.maps[0].dense())
        done.set()
    assert torch.equal(live.maps[0].dense(), expected.maps[0].dense())


def test_a_second_text_replaces_what_is_on_its_way(model, ids, tmp_path, monkeypatch):
    writing(monkeypatch, lambda number: time.sleep(0.01))
    with torch.no_grad(), watch(model, store=tmp_path / "x.regard"):
        model(ids)
        model(ids[:, :5])
    read = Recording.open(tmp_path / "x.regard")
    assert {layer.map.shape[2] for layer in read.all_layers} == {5}
    assert len(read.all_layers) == LAYERS
