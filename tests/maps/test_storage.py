"""Observations survive the disk."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from maps.cases import cases, tensors
from regard import Causal, ColumnMass, Entropy, Observation, TopK, Where, observe
from regard.errors import MapError, MaskError
from regard.maps import storage

CASES = cases()


@pytest.mark.parametrize("name", [name for name in CASES if name != "score mod"])
def test_a_saved_observation_reads_back_the_same(name, tmp_path):
    case = CASES[name]
    seen = observe(
        case.q, case.k, case.v, case.mask, stats=[Entropy(), ColumnMass(), TopK(2)], **case.options
    )
    seen.save(tmp_path / "seen.safetensors")
    back = Observation.load(tmp_path / "seen.safetensors")
    assert torch.equal(back.out, seen.out)
    assert torch.equal(back.entropy, seen.entropy)
    assert torch.equal(back.top_k.key, seen.top_k.key)
    assert type(back.top_k) is type(seen.top_k)
    assert torch.equal(back.map[0, 0, -3:], seen.map[0, 0, -3:])
    assert list(tmp_path.iterdir()) == [tmp_path / "seen.safetensors"]


def test_functions_cannot_be_saved_and_the_error_says_what_to_do(tmp_path):
    q, k, v = tensors(1, 1, 1, 5, 5)
    with pytest.raises(MapError, match=r"a function cannot be saved\. Use bias= instead"):
        observe(q, k, v, score_mod=lambda s, b, h, i, j: s).save(tmp_path / "x")
    with pytest.raises(MaskError, match="Where"):
        observe(q, k, v, Where(lambda b, h, i, j: i >= j)).save(tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_other_files_are_refused_by_name(tmp_path):
    (tmp_path / "noise").write_bytes(b"not a tensor in sight")
    with pytest.raises(MapError, match=r"noise cannot be read as a saved observation"):
        Observation.load(tmp_path / "noise")
    with pytest.raises(MapError, match="missing cannot be read"):
        Observation.load(tmp_path / "missing")
    save_file({"x": torch.zeros(1)}, tmp_path / "other")
    with pytest.raises(MapError, match="not an observation that regard saved"):
        Observation.load(tmp_path / "other")


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    q, k, v = tensors(1, 1, 1, 5, 5)
    monkeypatch.setattr(storage, "FORMAT", 2)
    observe(q, k, v, Causal()).save(tmp_path / "new")
    monkeypatch.setattr(storage, "FORMAT", 1)
    with pytest.raises(MapError, match="has format 2 and this regard reads up to 1"):
        Observation.load(tmp_path / "new")
