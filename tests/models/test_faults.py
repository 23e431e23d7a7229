"""Writing that fails: killed, or out of room. What is left can be read, or is not there."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import time

import pytest
import torch

from regard.errors import RegardError
from regard.models import Recording, manifest, storage, watch, writer

# What Python announces before it changes something on disk.
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")


@pytest.fixture
def recordings(llama, ids):
    """Two recordings of different texts, so that one can be told from the other."""
    found = []
    for length in (13, 5):
        with watch(llama) as recording:
            llama(ids[:, :length])
        found.append(recording)
    return found


def save_until_killed(recordings, path, delay: float) -> None:
    """Save in a process of its own, over and over, until SIGKILL comes."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                for recording in recordings:
                    recording.save(path, overwrite=True)
        finally:
            os._exit(1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def check_readable(path) -> str:
    """Read everything that is there; a damaged or torn file would raise."""
    if not path.exists():
        return "nothing"
    read = Recording.open(path)
    lengths = {layer.map.dense().shape[2] for layer in read.all_layers}
    assert len(lengths) <= 1
    assert not read.complete or len(read.all_layers) == 2
    return "complete" if read.complete else "partial"


def kill_repeatedly(recordings, tmp_path, times: int) -> None:
    start = time.perf_counter()
    recordings[0].save(tmp_path / "warm.regard")
    once = time.perf_counter() - start
    chance = random.Random(7)
    for attempt in range(times):
        path = tmp_path / f"{attempt // 4}.regard"
        save_until_killed(recordings, path, chance.uniform(0, 2.5 * once))
        check_readable(path)
        recordings[attempt % 2].save(path, overwrite=True)
        assert check_readable(path) == "complete"


def killed_at_step(recording, path, step: int) -> bool:
    """Save in a process that is killed before its n-th change on disk; False if it had fewer to make."""
    child = os.fork()
    if child == 0:
        left = step

        def kill(event, args):
            nonlocal left
            if event in CHANGES and str(path.name) in str(args):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        # Whatever happens, the child ends here: as a second test runner it would never end.
        try:
            sys.addaudithook(kill)
            recording.save(path, overwrite=True)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# A test process has threads, of which a child that only writes files and dies needs none.
forks = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@needs_fork
@forks
@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_before_any_change_on_disk_leaves_a_recording_that_reads(recordings, tmp_path, replaces):
    found = []
    for step in range(1, 200):
        path = tmp_path / f"{step}.regard"
        if replaces:
            recordings[0].save(path)
        if not killed_at_step(recordings[1], path, step):
            break
        found.append(check_readable(path))
    assert check_readable(path) == "complete"
    assert len(found) >= 10
    # The old recording stands until the new one is whole; without an old one the new one is partial.
    assert set(found) == ({"complete"} if replaces else {"nothing", "partial", "complete"})


@needs_fork
@forks
def test_a_kill_at_any_moment_leaves_a_recording_that_reads(recordings, tmp_path):
    kill_repeatedly(recordings, tmp_path, 24)


@pytest.mark.slow
@needs_fork
@forks
def test_two_hundred_kills_leave_recordings_that_read(recordings, tmp_path):
    kill_repeatedly(recordings, tmp_path, 200)


class KilledError(BaseException):
    """The end of a process, as its files see it."""


def kill(*arguments):
    raise KilledError


def test_a_writer_killed_while_it_tidies_up_leaves_a_complete_recording(recordings, tmp_path, monkeypatch):
    path = tmp_path / "x.regard"
    with monkeypatch.context() as patched:
        patched.setattr(writer, "remove_others", kill)
        with pytest.raises(KilledError):
            recordings[0].save(path)
    assert (path / manifest.PARTIAL).exists()
    assert check_readable(path) == "complete"
    with pytest.raises(RegardError, match="is complete: there is nothing to resume"):
        recordings[1].save(path, resume=True)
    with pytest.raises(RegardError, match="holds a recording already"):
        recordings[1].save(path)
    assert Recording.open(path).maps[0].shape[2] == 13
    recordings[1].save(path, resume=True, overwrite=True)
    assert Recording.open(path).maps[0].shape[2] == 5
    assert not (path / manifest.PARTIAL).exists()


def test_resuming_with_another_text_leaves_the_partial_recording(recordings, tmp_path, monkeypatch):
    path, steps = tmp_path / "x.regard", iter([storage.Draft.write, kill])
    with monkeypatch.context() as patched:
        patched.setattr(storage.Draft, "write", lambda *arguments: next(steps)(*arguments))
        with pytest.raises(KilledError):
            recordings[0].save(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    with pytest.raises(RegardError, match="is of another text"):
        recordings[1].save(path, resume=True)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before
    recordings[0].save(path, resume=True)
    assert check_readable(path) == "complete"


def test_what_a_kill_left_of_a_file_goes_when_the_recording_is_complete(recordings, tmp_path):
    path = tmp_path / "x.regard"
    recordings[0].save(path)
    names = {file.suffix for file in path.iterdir()}
    # safetensors writes to a file of such a name before it has one of ours.
    for left in (".tmpAbC123", "0-0.safetensors.tmp"):
        (path / left).write_bytes(b"half of a layer")
    (path / "notes.txt").write_text("the user's own")
    recordings[1].save(path, overwrite=True)
    assert {file.suffix for file in path.iterdir()} == {*names, ".txt"}


def full(*args, **kwargs):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_half_recording(recordings, tmp_path, monkeypatch):
    path = tmp_path / "x.regard"
    real, calls = storage._write_segment, []

    def second_fails(*args):
        calls.append(args)
        return full() if len(calls) == 2 else real(*args)

    monkeypatch.setattr(storage, "_write_segment", second_fails)
    message = "writing the recording to .* failed: .*No space left on device.* Make room"
    with pytest.raises(RegardError, match=message):
        recordings[0].save(path)
    assert not path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_may_not_be_written_is_not_called_full(recordings, tmp_path, monkeypatch):
    def refuses(*args):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(storage, "_write_segment", refuses)
    said = r"x.regard cannot be written: Read-only file system. Save the recording somewhere else.$"
    with pytest.raises(RegardError, match=said):
        recordings[0].save(tmp_path / "x.regard")


def test_a_full_disk_leaves_the_old_recording(recordings, tmp_path, monkeypatch):
    path = tmp_path / "x.regard"
    recordings[0].save(path)
    before = sorted(path.iterdir())
    monkeypatch.setattr(storage, "_write_segment", full)
    with pytest.raises(RegardError, match="No space left on device"):
        recordings[1].save(path, overwrite=True)
    assert sorted(path.iterdir()) == before
    assert torch.equal(Recording.open(path).maps[0].dense(), recordings[0].maps[0].dense())


def test_a_disk_that_is_full_at_the_last_page_leaves_no_half_recording(recordings, tmp_path, monkeypatch):
    real = manifest.os.fsync
    calls = []

    def last_fails(file):
        calls.append(file)
        return full() if len(calls) == 4 else real(file)

    monkeypatch.setattr(manifest.os, "fsync", last_fails)
    with pytest.raises(RegardError, match="No space left on device"):
        recordings[0].save(tmp_path / "x.regard")
    assert list(tmp_path.iterdir()) == []


def test_what_safetensors_says_of_a_full_disk_is_understood(recordings, tmp_path, monkeypatch):
    from safetensors import SafetensorError

    def fails(*args):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(storage, "_write_segment", fails)
    with pytest.raises(RegardError, match=r"writing the recording to .* failed: I/O error: No space left"):
        recordings[0].save(tmp_path / "x.regard")
    assert list(tmp_path.iterdir()) == []


def test_no_room_is_noticed_before_anything_is_written(recordings, tmp_path, monkeypatch):
    from regard.models import target

    monkeypatch.setattr(target, "free_bytes", lambda path: 100)
    with pytest.raises(RegardError, match=r"the recording takes .* KB and 100 bytes are free at"):
        recordings[0].save(tmp_path / "x.regard")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_while_streaming_leaves_the_layers_before(llama, ids, tmp_path, monkeypatch):
    path = tmp_path / "x.regard"
    real = storage._write_segment

    def second_fails(tensors, file, *args):
        return full() if "-001-" in file.name else real(tensors, file, *args)

    monkeypatch.setattr(storage, "_write_segment", second_fails)
    with pytest.raises(RegardError, match="No space left on device"), watch(llama, store=path):
        llama(ids)
    partial = Recording.open(path)
    assert not partial.complete
    assert list(partial.layers) == [0]
    assert llama.config._attn_implementation == "eager"
