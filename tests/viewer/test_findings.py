"""Evidence for a kind and one token in every head, as the server tells them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import regard
from regard.atlas import cards_of

MEANINGS = Path(__file__).parents[2] / "frontend/src/views/atlas/meanings.ts"
HEAD = "/stacks/decoder/layers/1/heads/2"


def test_evidence_sums_up_the_recorded_map(client, base, odd_recording):
    said = client.get(f"{base}{HEAD}/evidence?kind=previous token&k=3").json()
    dense = odd_recording.maps[1][0, 2]
    line = dense.diagonal(-1)
    assert said["queries"] == len(line)
    assert said["mean"] == pytest.approx(float(line.mean()), rel=1e-5)
    assert said["hits"] == int((dense.argmax(-1)[1:] == torch.arange(len(line))).sum())
    best = line.topk(3)
    assert [place["key"] for place in said["places"]] == best.indices.tolist()
    assert [place["weight"] for place in said["places"]] == pytest.approx(best.values.tolist(), rel=1e-5)
    assert len(said["along"]["position"]) == len(said["along"]["weight"]) == len(said["along"]["hits"]) <= 64


def test_evidence_for_what_is_no_kind_is_404_and_without_distances_400(client, base):
    assert client.get(f"{base}{HEAD}/evidence?kind=nonsense").status_code == 404
    answer = client.get(f"{base}/stacks/cross/layers/0/heads/0/evidence?kind=self")
    assert answer.status_code == 400
    assert "two texts" in answer.json()["error"]


def test_one_query_in_every_head_is_its_rows(client, base, odd_recording):
    said = client.get(f"{base}/stacks/decoder/everywhere?query=400&key=390").json()
    rows = torch.stack([odd_recording.maps[layer][0, :, 400] for layer in said["layers"]])
    assert (said["layers"], said["heads"]) == ([0, 1, 2], 4)
    assert said["top"] == rows.argmax(-1).tolist()
    torch.testing.assert_close(torch.tensor(said["top_weight"]), rows.amax(-1))
    torch.testing.assert_close(torch.tensor(said["weight"]), rows[:, :, 390])
    torch.testing.assert_close(torch.tensor(said["entropy"]), torch.special.entr(rows).sum(-1))
    assert said["mass"] is None
    mean = rows.mean((0, 1))
    assert said["others"][0]["position"] == int(mean.argmax())
    assert said["others"][0]["weight"] == pytest.approx(float(mean.max()), rel=1e-5)


def test_one_key_in_every_head_is_its_columns(client, base, odd_recording):
    said = client.get(f"{base}/stacks/decoder/everywhere?key=390").json()
    columns = torch.stack([odd_recording.maps[layer][0, :, :, 390] for layer in said["layers"]])
    assert said["top"] == columns.argmax(-1).tolist()
    torch.testing.assert_close(torch.tensor(said["mass"]), columns.sum(-1))
    assert said["entropy"] is None
    assert said["weight"] is None


@pytest.mark.parametrize("asked", ["", "query=701", "query=0&key=701", "key=701"])
def test_a_token_that_is_not_there_is_404(client, base, asked):
    assert client.get(f"{base}/stacks/decoder/everywhere?{asked}").status_code == 404


def test_the_page_explains_every_statistic_of_the_atlas():
    x = torch.randn(2, 1, 1, 99, 8, generator=torch.Generator().manual_seed(0))
    (card,) = cards_of(regard.AttentionMap.of(*x, mask=regard.Causal()))
    numbers = {name for name, value in card.statistics.items() if not isinstance(value, str)} - {"decay_note"}
    explained = set(re.findall(r"^  (\w+):", MEANINGS.read_text(), re.MULTILINE))
    assert numbers == explained | {"decay_better"} & numbers
