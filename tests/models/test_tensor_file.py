"""Files of tensors: what safetensors reads, with the checksum of what is on disk, or an error."""

from __future__ import annotations

import errno
import os
import threading

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import regard
from regard.engine.gemm import ALIGNMENT
from regard.errors import RecordingError
from regard.models import Recording, buffers, storage, tensor_file, watch
from regard.models.buffers import PAGE, Buffers
from regard.models.manifest import digest_of
from regard.models.tensor_file import write_tensors

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@pytest.mark.parametrize("n", [0, 1, 7, 70_000])
def test_safetensors_reads_what_was_written_and_the_checksum_is_that_of_the_file(tmp_path, n):
    tensors = {f"x{i}": torch.randn(3, n).to(dtype) for i, dtype in enumerate(DTYPES)} | {
        "one": torch.tensor(2.5)
    }
    size, digest = write_tensors(tensors, tmp_path / "x")
    read = load_file(tmp_path / "x")
    assert read.keys() == tensors.keys()
    for name, x in tensors.items():
        assert read[name].dtype == x.dtype
        assert torch.equal(read[name], x)
    assert (size, digest) == ((tmp_path / "x").stat().st_size, digest_of(tmp_path / "x"))


def test_tensors_of_whole_units_are_always_aligned(tmp_path):
    tensors = {"a": torch.randn(3), "b": torch.randn(16), "c": torch.randn(5, 32).half(), "d": torch.ones(1)}
    write_tensors(tensors, tmp_path / "x")
    with safe_open(str(tmp_path / "x"), "pt") as file:
        starts = {name: file.get_tensor(name).data_ptr() % ALIGNMENT for name in tensors}
    assert (starts["b"], starts["c"]) == (0, 0)


def test_a_disk_that_takes_a_little_at_a_time_gets_it_all(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(tensor_file.os, "write", lambda file, piece: real(file, piece[:1001]))
    x = torch.randn(5000)
    write_tensors({"x": x}, tmp_path / "x")
    assert torch.equal(load_file(tmp_path / "x")["x"], x)


@pytest.fixture(params=["past the page cache", "through it"])
def pieces(request, monkeypatch):
    """Files of a page or more are written in pieces of two pages."""
    monkeypatch.setattr(tensor_file, "SMALL", 0)
    monkeypatch.setattr(tensor_file, "LARGE", 0 if request.param == "past the page cache" else 1 << 60)
    for module in (tensor_file, buffers):
        monkeypatch.setattr(module, "PIECE", 2 * PAGE)


def check_written(tensors, path, **options) -> None:
    size, digest = write_tensors(tensors, path, **options)
    read = load_file(path)
    assert all(torch.equal(read[name], x) for name, x in tensors.items())
    assert (size, digest) == (path.stat().st_size, digest_of(path))


@pytest.mark.parametrize("n", [0, 1, 1000, 2 * PAGE - 136, 2 * PAGE, 70_001])
def test_a_file_in_pieces_holds_every_tensor_whole(tmp_path, pieces, n):
    tensors = {"x": torch.arange(n, dtype=torch.uint8), "y": torch.randn(3 * n), "z": torch.tensor(True)}
    check_written(tensors, tmp_path / "x")


def test_a_disk_that_takes_part_of_a_piece_gets_it_all(tmp_path, pieces, monkeypatch):
    real = os.write
    monkeypatch.setattr(tensor_file.os, "write", lambda file, piece: real(file, piece[:1001]))
    check_written({"x": torch.randn(20_000)}, tmp_path / "x")


def refuses_direct(real, place: int):
    """The `place`-th call fails as where a file system knows no O_DIRECT."""
    calls = []

    def call(*args):
        calls.append(args)
        if len(calls) == place:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(*args)

    return call


@pytest.mark.skipif(not tensor_file.O_DIRECT, reason="needs O_DIRECT")
@pytest.mark.parametrize(("call", "place"), [("open", 1), ("write", 1), ("write", 3)])
def test_a_file_system_that_needs_its_page_cache_gets_it(tmp_path, monkeypatch, call, place):
    monkeypatch.setattr(tensor_file, "SMALL", 0)
    monkeypatch.setattr(tensor_file, "LARGE", 0)
    for module in (tensor_file, buffers):
        monkeypatch.setattr(module, "PIECE", 2 * PAGE)
    monkeypatch.setattr(tensor_file.os, call, refuses_direct(getattr(os, call), place))
    check_written({"x": torch.randn(20_000)}, tmp_path / "x")


@pytest.mark.parametrize("written", [0, 1, 5])
def test_a_disk_that_fills_up_ends_the_file_with_its_error(tmp_path, pieces, monkeypatch, written):
    held = Buffers()
    with monkeypatch.context() as patched:
        patched.setattr(tensor_file.os, "write", fills_up_after(written))
        with pytest.raises(OSError, match="No space left on device"):
            write_tensors({"x": torch.randn(50_000)}, tmp_path / "x", held)
    check_written({"x": torch.randn(50_000)}, tmp_path / "y", buffers=held)


def test_a_file_of_any_size_takes_as_many_buffers(tmp_path, pieces):
    class Counted(Buffers):
        out = most = 0

        def take(self, pinned):
            self.out += 1
            self.most = max(self.most, self.out)
            return super().take(pinned)

        def give(self, buffer):
            self.out -= 1
            super().give(buffer)

    held = Counted()
    check_written({"x": torch.randn(300_000)}, tmp_path / "x", buffers=held)
    assert (held.most, held.out) == (tensor_file.DEPTH, 0)


def test_a_dtype_that_no_recording_has_is_refused(tmp_path):
    with pytest.raises(RecordingError, match=r"x is torch\.complex64, which a recording cannot hold"):
        write_tensors({"x": torch.zeros(2, dtype=torch.complex64)}, tmp_path / "x")


def fills_up_after(calls: int):
    real, left = os.write, [calls]

    def write(file, piece):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, piece)

    return write


@pytest.mark.parametrize("written", [0, 1])
def test_a_disk_that_fills_up_behind_the_model_is_never_called_complete(
    llama, ids, tmp_path, monkeypatch, written
):
    path = tmp_path / "x.regard"
    monkeypatch.setattr(tensor_file.os, "write", fills_up_after(written))
    message = "writing the recording to .* failed: .*No space left on device.* Make room"
    with pytest.raises(regard.errors.RegardError, match=message), watch(llama, store=path):
        llama(ids)
    monkeypatch.undo()
    if path.exists():
        left = Recording.open(path)
        assert not left.complete
        for layer in left.all_layers:
            layer.map.dense()
        with watch(llama, store=path, resume=True):
            llama(ids)
        assert Recording.open(path).complete
    else:
        assert list(tmp_path.iterdir()) == []


def test_what_the_model_writes_over_later_is_recorded_as_it_was(llama, ids, tmp_path, monkeypatch):
    with watch(llama) as expected:
        llama(ids)
    real, put, overwritten, held = storage.write_tensors, Recording.put, threading.Event(), []

    def write_late(*args):
        overwritten.wait()
        return real(*args)

    def hold(recording, layer):
        put(recording, layer)
        held.extend((layer.segments[0].q, layer.segments[0].k, layer.segments[0].v))

    def overwrite(*_):
        for x in held:
            x.zero_()
        overwritten.set()

    monkeypatch.setattr(storage, "write_tensors", write_late)
    monkeypatch.setattr(Recording, "put", hold)
    hook = llama.model.layers[1].register_forward_pre_hook(overwrite)
    with torch.no_grad(), watch(llama, store=tmp_path / "x.regard"):
        llama(ids)
    hook.remove()
    assert torch.equal(Recording.open(tmp_path / "x.regard").maps[0].dense(), expected.maps[0].dense())
