"""Tiles over HTTP, against dense maps pooled the slow way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from viewer.conftest import grid

SITES = [("decoder", 0), ("decoder", 1), ("decoder", 2), ("cross", 0)]


def joined(cells: np.ndarray, size: int, how: str) -> np.ndarray:
    """The sum, or the largest, of every block, by numpy's own means; the last blocks are smaller."""
    join = np.maximum if how == "max" else np.add
    for axis, n in enumerate(cells.shape):
        cells = join.reduceat(cells, np.arange(0, n, size), axis)
    return cells


def averaged(sums: np.ndarray, shape: tuple[int, ...], size: int) -> np.ndarray:
    """The mean of every block from its sum: the last blocks are averaged over what they have."""
    sides = [np.minimum(size, n - np.arange(0, n, size)) for n in shape]
    return sums / np.outer(*sides)


def pooled(dense: Tensor, size: int, how: str) -> Tensor:
    found = joined(dense.double().numpy(), size, how)
    return torch.tensor(found if how == "max" else averaged(found, dense.shape, size)).float()


@pytest.mark.parametrize(("role", "layer"), SITES)
@pytest.mark.parametrize("how", ["mean", "max"])
def test_every_tile_of_every_level_equals_dense_pooling(client, base, odd_recording, role, layer, how):
    head = 3
    dense = odd_recording.stack(role).maps[layer][0, head]
    stack = next(s for s in client.get(base).json()["stacks"] if s["role"] == role)
    for level in range(stack["levels"]):
        wanted = pooled(dense, 1 << level, how)
        for row, band in enumerate(wanted.split(256, 0)):
            for col, tile in enumerate(band.split(256, 1)):
                path = f"{base}/stacks/{role}/layers/{layer}/heads/{head}/tile"
                where = {"level": level, "row": row, "col": col, "how": how}
                torch.testing.assert_close(grid(client.get(path, params=where)), tile, rtol=5e-6, atol=1e-9)


def test_the_last_level_is_the_first_that_fits_in_one_tile(client, base):
    found = client.get(base).json()
    assert [(stack["role"], stack["levels"]) for stack in found["stacks"]] == [("decoder", 3), ("cross", 2)]
    assert (found["levels"], found["tile"]) == (3, 256)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ({"level": 3, "row": 0, "col": 0}, "level 3 is out of range: this map has 3 (level 0 to 2)."),
        ({"level": 1, "row": 2, "col": 0}, "row 2 is out of range: level 1 has 2 (row 0 to 1)."),
        ({"level": 0, "row": 0, "col": 9}, "col 9 is out of range: level 0 has 3 (col 0 to 2)."),
    ],
)
def test_a_tile_outside_the_map_is_refused_with_what_there_is(client, base, where, text):
    answer = client.get(f"{base}/stacks/decoder/layers/0/heads/0/tile", params=where)
    assert (answer.status_code, answer.json()) == (404, {"error": text})


def test_a_tile_is_kept_by_browsers_and_not_sent_twice(client, base):
    path = f"{base}/stacks/decoder/layers/0/heads/0/tile?level=0&row=0&col=0"
    first = client.get(path)
    assert "immutable" in first.headers["cache-control"]
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"{path}&how=max").headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize("size", [1, 7, 64, 256])
def test_a_thumb_is_the_whole_map_in_few_blocks(client, base, odd_recording, size):
    path = f"{base}/stacks/cross/layers/0/heads/2/thumb"
    found = grid(client.get(path, params={"size": size, "how": "max"}))
    assert max(found.shape) <= size
    block = 1 << (-(-301 // size) - 1).bit_length()
    wanted = pooled(odd_recording.cross.maps[0][0, 2], block, "max")
    torch.testing.assert_close(found, wanted, rtol=5e-6, atol=1e-9)
