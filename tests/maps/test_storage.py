"""Observations survive the disk."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

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


DAMAGE = {
    "no recipe": (lambda about, tensors: about.pop("recipe"), r"\(KeyError: 'recipe'\)"),
    "statistics that are no table": (lambda about, tensors: about.update(stats=7), r"\(AttributeError: "),
    "a result of an unknown kind": (
        lambda about, tensors: about["stats"].update(entropy="x"),
        r"\(AttributeError: .*no attribute 'x'",
    ),
    "a mask of an unknown kind": (
        lambda about, tensors: about["recipe"]["mask"].update(type="x"),
        r"\(MaskError: no mask is called 'x'",
    ),
    "rows of another length": (
        lambda about, tensors: tensors.update(lse=tensors["lse"][:, :, :2].contiguous()),
        r"\(ShapeError: lse is torch\.float32 of shape \(1, 1, 2\); q wants torch\.float32, \(1, 1, 5\)\)",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_says_what_cannot_be_is_refused_with_the_reason(tmp_path, name):
    file = tmp_path / "seen"
    q, k, v = tensors(1, 1, 1, 5, 5)
    observe(q, k, v, Causal(), stats=[Entropy()]).save(file)
    held = load_file(file)
    with safe_open(str(file), "pt") as opened:
        about = json.loads(opened.metadata()["regard"])
    change, message = DAMAGE[name]
    change(about, held)
    save_file(held, file, metadata={"regard": json.dumps(about)})
    with pytest.raises(MapError, match=rf"seen is damaged and cannot be read {message}.*\. Save it again\.$"):
        Observation.load(file)
