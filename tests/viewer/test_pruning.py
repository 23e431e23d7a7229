"""The stored overviews stay within a size."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from regard import Causal, Window
from regard.viewer import Settings, create_app
from regard.viewer.pruning import DEAD, prune, touch
from regard.viewer.pyramid import Pyramid
from viewer.conftest import grid
from viewer.samples import layer, recording, saved
from viewer.waiting import finished

SIZE = 65_536


def stored(cache: Path, name: str, age: float) -> Pyramid:
    """Files with the sizes and times of overviews; their content is never read."""
    made = Pyramid(cache / "pyramids" / name, "decoder-000-000", 63, 65)
    made.folder.mkdir(parents=True)
    for kind, count in (("mean", SIZE), ("max", SIZE), ("json", 1)):
        (made.folder / f"{made.name}.{kind}").write_bytes(b"x" * count)
    when = time.time() - age
    os.utime(made.about_file, (when, when))
    return made


def there(*pyramids: Pyramid) -> list[bool]:
    return [pyramid.about_file.exists() for pyramid in pyramids]


def test_what_was_used_longest_ago_goes_first_and_leaves_nothing_behind(tmp_path):
    old, new, older = (stored(tmp_path, name, age) for name, age in (("a", 50), ("b", 5), ("c", 500)))
    freed = prune(tmp_path, 2 * (2 * SIZE + 4096))
    assert there(old, new, older) == [True, True, False]
    assert not older.folder.exists()
    assert 2 * SIZE <= freed <= 2 * SIZE + 8192


def test_being_used_keeps_overviews(tmp_path):
    one, other = stored(tmp_path, "a", 500), stored(tmp_path, "b", 50)
    touch(one)
    prune(tmp_path, 2 * SIZE + 8192)
    assert there(one, other) == [True, False]


def test_what_fits_stays(tmp_path):
    both = stored(tmp_path, "a", 500), stored(tmp_path, "b", 50)
    assert prune(tmp_path, 8 * SIZE) == 0
    assert there(*both) == [True, True]


def test_what_was_just_made_stays_however_large_it_is(tmp_path):
    made, other = stored(tmp_path, "a", 500), stored(tmp_path, "b", 50)
    prune(tmp_path, 0, [made])
    assert there(made, other) == [True, False]


def test_a_hole_in_a_file_takes_no_room(tmp_path):
    one, other = stored(tmp_path, "a", 500), stored(tmp_path, "b", 50)
    with open(one.folder / f"{one.name}.mean", "wb") as file:
        file.truncate(1 << 30)
    if not hasattr(os.stat(tmp_path), "st_blocks"):
        pytest.skip("this system does not say what a file takes on the disk")
    assert prune(tmp_path, 4 * SIZE + 16384) == 0
    assert there(one, other) == [True, True]


def test_drafts_of_processes_that_died_are_swept_and_those_at_work_are_left(tmp_path):
    folder = tmp_path / "pyramids" / "a"
    folder.mkdir(parents=True)
    dead, alive = folder / ".x.1.mean.tmp", folder / ".x.2.mean.tmp"
    for draft in (dead, alive):
        draft.write_bytes(b"x")
    os.utime(dead, (0, time.time() - DEAD - 60))
    prune(tmp_path, 0)
    assert (dead.exists(), alive.exists()) == (False, True)


def test_a_cache_that_is_not_there_is_no_trouble(tmp_path):
    assert prune(tmp_path / "nowhere", 0) == 0


def test_a_server_keeps_its_cache_within_its_size_and_makes_again_what_went(tmp_path):
    made = recording(layer(0, 8193, 8257, Causal() & Window(65), heads=2, kv_heads=1), text=False)
    path = saved(made, tmp_path / "x.regard")
    settings = Settings((path,), cache=tmp_path / "cache", cache_bytes=0)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]

        def overview(head: int):
            path = f"/api/recordings/{name}/stacks/decoder/layers/0/heads/{head}"
            while (answer := client.get(f"{path}/tile?level=6&row=0&col=0")).status_code == 503:
                finished(client, answer.json()["job"])
            return grid(answer)

        first = overview(0)
        overview(1)
        assert len(list((tmp_path / "cache").glob("pyramids/*/*.json"))) == 1
        app_tiles = client.app.state.session.tiles  # pyright: ignore
        app_tiles._kept.clear()
        assert overview(0).equal(first)


def test_the_command_line_says_how_much_is_kept(monkeypatch, tmp_path):
    from regard.commands.app import app
    from regard.viewer import opening

    seen = []
    monkeypatch.setattr(opening, "open_viewer", lambda settings, *_, **__: seen.append(settings))
    assert CliRunner().invoke(app, ["view", "--cache-size", "0.5"]).exit_code == 0
    assert CliRunner().invoke(app, ["view"]).exit_code == 0
    assert [settings.cache_bytes for settings in seen] == [1 << 29, 8 << 30]
