"""Cells, rows, columns, regions and statistics over HTTP, against the map in Python."""

from __future__ import annotations

import math

import pytest
import torch

from viewer.conftest import grid

SITES = [("decoder", 0, 701), ("decoder", 1, 701), ("decoder", 2, 701), ("cross", 0, 63)]


def map_of(recording, role, layer, head=1):
    return recording.stack(role).maps[layer][0, head]


@pytest.mark.parametrize(("role", "layer", "rows"), SITES)
def test_a_cell_says_what_the_map_says(client, base, odd_recording, role, layer, rows):
    dense = map_of(odd_recording, role, layer)
    scores = odd_recording.stack(role).maps[layer].scores((0, 1))
    offset = dense.shape[1] - rows
    for query, key in [(0, 0), (rows - 1, 0), (rows // 2, dense.shape[1] - 1), (62, 62 + offset)]:
        said = client.get(
            f"{base}/stacks/{role}/layers/{layer}/heads/1/cell", params={"query": query, "key": key}
        ).json()
        assert said["weight"] == pytest.approx(float(dense[query, key]), rel=1e-5, abs=1e-12)
        assert said["visible"] == math.isfinite(scores[query, key])
        assert said["distance"] == query + offset - key
        if said["visible"]:
            assert said["score"] == pytest.approx(float(scores[query, key]), rel=1e-5)
            assert said["log_weight"] == pytest.approx(math.log(said["weight"]), rel=1e-5)
            assert said["rank"] == 1 + int((scores[query] > scores[query, key]).sum())
        else:
            assert (said["score"], said["log_weight"], said["rank"]) == (None, None, None)


def test_a_row_says_its_heaviest_keys_and_its_entropy(client, base, odd_recording):
    row = map_of(odd_recording, "decoder", 1)[640]
    said = client.get(f"{base}/stacks/decoder/layers/1/heads/1/row?query=640&k=5").json()
    top = row.topk(5)
    assert [one["key"] for one in said["top"]] == top.indices.tolist()
    assert [one["weight"] for one in said["top"]] == pytest.approx(top.values.tolist())
    assert said["entropy"] == pytest.approx(float(odd_recording.layers[1].entropy[0, 1, 640]), rel=1e-5)
    assert said["lse"] == pytest.approx(float(odd_recording.layers[1].lse[0, 1, 640]))
    assert said["mass_shown"] == pytest.approx(float(top.values.sum()))


def test_a_row_with_few_keys_shows_only_those(client, base):
    assert [
        one["key"]
        for one in client.get(f"{base}/stacks/decoder/layers/0/heads/1/row?query=0&k=9").json()["top"]
    ] == [0]


def test_a_column_says_who_looks_at_a_key(client, base, odd_recording):
    column = map_of(odd_recording, "decoder", 0)[:, 3]
    said = client.get(f"{base}/stacks/decoder/layers/0/heads/1/column?key=3&k=4").json()
    assert [one["query"] for one in said["top"]] == column.topk(4).indices.tolist()
    assert said["mass"] == pytest.approx(float(column.sum()), rel=1e-5)


def test_weights_are_one_row_or_one_column(client, base, odd_recording):
    dense = map_of(odd_recording, "cross", 0)
    path = f"{base}/stacks/cross/layers/0/heads/1/weights"
    torch.testing.assert_close(grid(client.get(f"{path}?query=62")), dense[62][None])
    torch.testing.assert_close(grid(client.get(f"{path}?key=300")), dense[:, 300][None])


def test_layer_weights_have_a_row_for_every_head(client, base, odd_recording):
    whole = odd_recording.layers.maps[2][0]
    path = f"{base}/stacks/decoder/layers/2/weights"
    torch.testing.assert_close(grid(client.get(f"{path}?query=700")), whole[:, 700])
    torch.testing.assert_close(grid(client.get(f"{path}?key=299")), whole[:, :, 299])


@pytest.mark.parametrize("question", ["", "?query=1&key=1"])
def test_weights_want_a_query_or_a_key(client, base, question):
    answer = client.get(f"{base}/stacks/decoder/layers/0/heads/0/weights{question}")
    assert answer.status_code == 404
    assert answer.json()["error"] == "give either a query, for its row, or a key, for its column."


@pytest.mark.parametrize(("role", "layer", "rows"), SITES)
def test_a_region_sums_up_its_cells(client, base, odd_recording, role, layer, rows):
    dense = map_of(odd_recording, role, layer)
    whole = odd_recording.stack(role).maps[layer]
    for q0, q1, k0, k1 in [(0, rows, 0, dense.shape[1]), (5, 63, 0, 40), (rows - 1, rows, 100, 301)]:
        asked = {"q0": q0, "q1": q1, "k0": k0, "k1": k1}
        said = client.get(f"{base}/stacks/{role}/layers/{layer}/heads/1/region", params=asked).json()
        part = dense[q0:q1, k0:k1]
        assert said["cells"] == part.numel()
        assert said["visible"] == int((whole.scores((0, 1, slice(q0, q1), slice(k0, k1))) > -math.inf).sum())
        assert said["mass"] == pytest.approx(float(part.sum()), rel=1e-5, abs=1e-9)
        assert said["share"] == pytest.approx(said["mass"] / (q1 - q0))
        assert said["max"] == pytest.approx(float(part.max()), rel=1e-5)
        if said["max"] > 0:
            q, k = said["max_at"]
            assert float(dense[q, k]) == pytest.approx(float(part.max()), rel=1e-5)
        entropy = odd_recording.stack(role)[layer].entropy[0, 1, q0:q1].mean()
        assert said["entropy_mean"] == pytest.approx(float(entropy), rel=1e-5)


def test_a_region_that_is_none_is_refused(client, base):
    answer = client.get(f"{base}/stacks/decoder/layers/0/heads/0/region?q0=9&q1=9&k0=0&k1=4")
    assert answer.status_code == 404
    assert answer.json()["error"] == "q0 is 9 and q1 is 9; wanted q0 below q1, both between 0 and 701."


def test_statistics_are_those_recorded_and_curves_of_the_map(client, base, odd_recording):
    layer, dense = odd_recording.layers[1], map_of(odd_recording, "decoder", 1)
    said = client.get(f"{base}/stacks/decoder/layers/1/heads/1/statistics").json()
    assert said["names"] == ["entropy", "max_score", "mean_distance", "sink_mass"]
    torch.testing.assert_close(torch.tensor(said["rows"]["entropy"]), layer.entropy[0, 1])
    torch.testing.assert_close(
        torch.tensor(said["curves"]["profile"]["mass"]), dense.sum(0), rtol=1e-4, atol=1e-6
    )
    assert said["numbers"]["entropy_mean"] == pytest.approx(float(layer.entropy[0, 1].mean()), rel=1e-4)
    decay = said["curves"]["decay"]
    near = dict(zip(decay["distance"], decay["weight"], strict=True))
    assert near[0.0] == pytest.approx(float(dense.diagonal().mean()), rel=1e-4)
    assert near[1.0] == pytest.approx(float(dense.diagonal(-1).mean()), rel=1e-4)
    assert 60 < max(decay["distance"]) < 70


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "/stacks/encoder/layers/0/heads/0/cell?query=0&key=0",
            "the recording has no 'encoder'; its stacks are: decoder, cross.",
        ),
        (
            "/stacks/decoder/layers/7/heads/0/cell?query=0&key=0",
            "layer 7 was not recorded; recorded are: 0, 1, 2.",
        ),
        ("/stacks/decoder/layers/0/heads/4/cell?query=0&key=0", "head 4 is out of range: a layer has 4."),
        (
            "/stacks/decoder/layers/0/heads/0/cell?query=701&key=0",
            "query 701 is out of range: the map has 701 (query 0 to 700).",
        ),
        (
            "/stacks/decoder/layers/0/heads/0/column?key=999",
            "key 999 is out of range: the map has 701 (key 0 to 700).",
        ),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(client, base, path, text):
    answer = client.get(base + path)
    assert (answer.status_code, answer.json()["error"]) == (404, text)


def test_half_precision_recordings_are_read_in_float32(tmp_path):
    from fastapi.testclient import TestClient

    from regard.masks import Causal
    from regard.viewer import Settings, create_app
    from viewer.samples import layer, recording, saved

    made = recording(layer(0, 65, 65, Causal(), dtype=torch.bfloat16))
    path = saved(made, tmp_path / "half.regard")
    with TestClient(create_app(Settings((path,), cache=tmp_path)), base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]
        tile = grid(
            client.get(f"/api/recordings/{name}/stacks/decoder/layers/0/heads/3/tile?level=0&row=0&col=0")
        )
    torch.testing.assert_close(tile, made.maps[0][0, 3])
