"""Stored overviews of a map too large to be pooled on the spot."""

from __future__ import annotations

import shutil
from concurrent.futures import CancelledError

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from regard import Causal, Window
from regard.viewer import Settings, create_app
from regard.viewer.heads import Head
from regard.viewer.pyramid import Pyramid
from viewer.conftest import grid
from viewer.samples import layer, recording, saved
from viewer.test_tiles import averaged, joined, pooled
from viewer.waiting import finished

QUERIES, KEYS = 8193, 8257


@pytest.fixture(scope="module")
def long_layer():
    return layer(3, QUERIES, KEYS, Causal() & Window(5000), heads=2, kv_heads=1)


@pytest.fixture(scope="module")
def head(long_layer) -> Head:
    return Head.of(long_layer.map, 1)


@pytest.fixture(scope="module")
def dense(long_layer) -> torch.Tensor:
    return torch.cat([long_layer.map[0, 1, start : start + 1024] for start in range(0, QUERIES, 1024)])


@pytest.fixture(scope="module")
def stored(head, tmp_path_factory) -> Pyramid:
    found = Pyramid(tmp_path_factory.mktemp("pyramid"), "decoder-003-001", QUERIES, KEYS)
    assert not found.ready
    found.make(head)
    assert found.ready
    return found


@pytest.fixture(scope="module")
def parts(dense) -> dict[str, np.ndarray]:
    """Sums and maxima of blocks of 32 × 32 cells, of which larger ones are made."""
    cells = dense.double().numpy()
    return {how: joined(cells, 32, how) for how in ("mean", "max")}


def level_of(parts: dict[str, np.ndarray], level: int, how: str) -> torch.Tensor:
    """A level of the overview, from 5 on."""
    found = joined(parts[how], 1 << level - 5, how)
    if how == "mean":
        found = averaged(found, (QUERIES, KEYS), 1 << level)
    return torch.tensor(found).float()


@pytest.mark.parametrize("how", ["mean", "max"])
@pytest.mark.parametrize("level", [5, 6, 14])
def test_every_stored_level_equals_dense_pooling(stored, parts, level, how):
    torch.testing.assert_close(stored.level(level, how), level_of(parts, level, how), rtol=1e-5, atol=1e-9)


def test_the_coarsest_level_is_one_block(stored):
    assert list(stored.levels)[-1] == 14
    assert stored.level(14, "mean").shape == (1, 1)


def test_stored_curves_are_those_of_the_map(stored, dense):
    curves = stored.about()["curves"]
    assert len(curves["profile"]["mass"]) <= 2048
    mass = torch.tensor(curves["profile"]["mass"])
    wanted = torch.stack([part.mean() for part in dense.double().sum(0).split(5)]).float()
    torch.testing.assert_close(mass, wanted, rtol=1e-4, atol=1e-6)
    near = dict(zip(curves["decay"]["distance"], curves["decay"]["weight"], strict=True))
    shift = KEYS - QUERIES
    for distance in (0, 1, 7):
        wanted = dense.diagonal(shift - distance).double().mean()
        assert near[float(distance)] == pytest.approx(float(wanted), rel=1e-4)


def test_empty_tiles_take_no_room(stored):
    file = stored.folder / f"{stored.name}.mean"
    assert file.stat().st_blocks * 512 < file.stat().st_size / 2


def test_making_it_says_how_far_it_is_and_a_stop_leaves_nothing(head, tmp_path):
    found, seen = Pyramid(tmp_path, "x", QUERIES, KEYS), []

    def stop(done, total):
        seen.append((done, total))
        raise CancelledError

    with pytest.raises(CancelledError):
        found.make(head, stop)
    assert seen == [(1, 2)]
    assert list(tmp_path.iterdir()) == []
    assert not found.ready


def test_a_wide_map_is_read_in_pieces_of_a_band_and_stops_between_them(head, stored, tmp_path, monkeypatch):
    monkeypatch.setattr("regard.viewer.pyramid.PIECE", 600 * KEYS)
    found, seen = Pyramid(tmp_path, "x", QUERIES, KEYS), []

    def stop(done, total):
        seen.append((done, total))
        if done == 2:
            raise CancelledError

    with pytest.raises(CancelledError):
        found.make(head, stop)
    assert seen == [(1, 9), (2, 9)]
    assert list(tmp_path.iterdir()) == []
    found.make(head)
    for level in found.levels:
        for how in Pyramid.HOWS:
            torch.testing.assert_close(
                found.level(level, how), stored.level(level, how), rtol=1e-5, atol=1e-9
            )


@pytest.mark.parametrize("kind", ["json", "mean", "max"])
def test_a_pyramid_with_a_damaged_file_is_not_ready(stored, tmp_path, kind):
    shutil.copytree(stored.folder, tmp_path, dirs_exist_ok=True)
    found = Pyramid(tmp_path, stored.name, QUERIES, KEYS)
    assert found.ready
    file = tmp_path / f"{stored.name}.{kind}"
    file.write_bytes(file.read_bytes()[:-5])
    assert not found.ready


def test_a_long_map_answers_503_with_a_job_and_then_the_tile(long_layer, dense, parts, tmp_path):
    path = saved(recording(long_layer), tmp_path / "long.regard")
    settings = Settings((path,), cache=tmp_path / "cache")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]
        base = f"/api/recordings/{name}/stacks/decoder/layers/3/heads/1"
        fine = grid(client.get(f"{base}/tile?level=4&row=1&col=1&how=max"))
        wanted = pooled(dense[4096:8192, 4096:8192], 16, "max")
        torch.testing.assert_close(fine, wanted, rtol=5e-6, atol=1e-9)
        for path in ("thumb?size=64", "tile?level=5&row=0&col=0", f"region?q0=0&q1={QUERIES}&k0=0&k1={KEYS}"):
            answer = client.get(f"{base}/{path}")
            assert answer.status_code == 503
            assert answer.json()["error"].startswith("The overview of this head is being made")
        assert finished(client, answer.json()["job"])["state"] == "done"
        tile = grid(client.get(f"{base}/tile?level=5&row=1&col=1&how=mean"))
        torch.testing.assert_close(tile, level_of(parts, 5, "mean")[256:, 256:], rtol=1e-5, atol=1e-9)
        thumb = grid(client.get(f"{base}/thumb?size=64&how=max"))
        torch.testing.assert_close(thumb, level_of(parts, 8, "max"), rtol=1e-5, atol=1e-9)
        said = client.get(f"{base}/region?q0=3&q1={QUERIES}&k0=5&k1={KEYS - 1}").json()
        part = dense[3:, 5:-1]
        assert said["mass"] == pytest.approx(float(part.double().sum()), rel=1e-5)
        assert said["max"] == pytest.approx(float(part.max()), rel=1e-5)
        assert dense[tuple(said["max_at"])] == part.max()
        assert client.get(f"{base}/statistics").json()["curves"]["decay"]["distance"][0] == 0
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        # A second server finds what the first has made.
        assert client.get(f"{base}/tile?level=6&row=0&col=0").status_code == 200


def test_a_pyramid_whose_files_go_is_made_again(long_layer, tmp_path):
    path = saved(recording(long_layer), tmp_path / "long.regard")
    settings = Settings((path,), cache=tmp_path / "cache")
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]
        base = f"/api/recordings/{name}/stacks/decoder/layers/3/heads/0"
        job = client.post("/api/jobs", json={"kind": "pyramid", "recording": name, "head": 0}).json()["id"]
        said = finished(client, job)
        assert (said["state"], said["result"]["heads"], said["done"], said["total"]) == ("done", 1, 2, 2)
        assert client.get(f"{base}/tile?level=5&row=0&col=0").status_code == 200
        for file in (tmp_path / "cache").rglob("*.m*"):
            file.unlink()
        assert client.get(f"{base}/tile?level=6&row=0&col=0").status_code == 503
