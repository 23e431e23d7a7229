"""Results as arrays and tables: the same numbers, in the library that was asked for."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import safetensors
import torch

import regard
from regard import Causal, ColumnMass, Entropy, TopK
from regard.atlas.knockout import Candidate, Knockout
from regard.errors import RegardError
from regard.models import bundled, record


@pytest.fixture(scope="module")
def seen():
    q, k, v = torch.randn(3, 2, 3, 7, 8).unbind()
    return regard.observe(q, k, v, mask=Causal(), stats=[Entropy(), ColumnMass(), TopK(2)])


@pytest.fixture(scope="module")
def recording():
    return record(bundled(), "The badger lit the lamp.", layers=[0, 5])


def test_arrays_hold_every_part_of_an_observation(seen):
    found = seen.to_numpy()
    assert set(found) == {"out", "lse", "entropy", "column_mass", "top_k.weight", "top_k.key"}
    assert np.array_equal(found["entropy"], seen.entropy.numpy())
    half = seen.to("cpu")
    assert half.to_numpy()["out"].dtype == np.float32


def test_bfloat16_becomes_float32():
    q = torch.randn(1, 1, 3, 8, dtype=torch.bfloat16)
    assert regard.observe(q, q, q).to_numpy()["out"].dtype == np.float32


def test_a_data_frame_has_a_row_for_each_query(seen):
    pytest.importorskip("pandas")
    frame = seen.to_pandas()
    assert list(frame.columns) == ["batch", "head", "query", "lse", "entropy", "column_mass"]
    assert len(frame) == 2 * 3 * 7
    row = frame[(frame.batch == 1) & (frame["head"] == 2) & (frame["query"] == 5)]
    assert row.entropy.item() == seen.entropy[1, 2, 5].item()


def test_arrow_and_parquet_hold_the_same_rows(seen, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    seen.to_parquet(tmp_path / "rows.parquet")
    assert parquet.read_table(tmp_path / "rows.parquet").equals(seen.to_arrow())
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
    with pytest.raises(RegardError, match="cannot be written"):
        seen.to_parquet(tmp_path / "no" / "rows.parquet")


def test_a_recording_as_safetensors_holds_the_arrays_of_numpy(tmp_path):
    recording = record(bundled(), "The badger lit the lamp.", layers=[0, 6])
    recording.to_safetensors(tmp_path / "x.safetensors")
    with safetensors.safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert file.metadata()["kind"] == "SmolLM3ForCausalLM"
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wanted = recording.to_numpy()
    assert set(found) == set(wanted)
    assert all(np.array_equal(found[name], x) and found[name].dtype == x.dtype for name, x in wanted.items())
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
    with pytest.raises(RegardError, match="cannot be written"):
        recording.to_safetensors(tmp_path / "no" / "x.safetensors")


def test_a_library_that_is_missing_is_named(seen, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(RegardError, match=r'pip install "regard\[pandas\]"'):
        seen.to_pandas()


def test_zarr_holds_every_cell_of_a_map(seen, tmp_path):
    zarr = pytest.importorskip("zarr")
    seen.map.to_zarr(tmp_path / "map.zarr", chunk=4)
    stored = zarr.open_array(str(tmp_path / "map.zarr"))
    assert np.array_equal(stored[:], seen.map.to_numpy())
    assert stored.attrs["axes"] == ["batch", "head", "query", "key"]


def test_a_recording_has_a_row_for_each_query_of_each_layer(recording, tmp_path):
    pytest.importorskip("pandas")
    frame = recording.to_pandas()
    n = recording.token_ids["decoder"].shape[1]
    assert len(frame) == 2 * 6 * n
    assert set(frame["layer"]) == {0, 5}
    row = frame[(frame["layer"] == 5) & (frame["head"] == 3) & (frame["query"] == 2)]
    assert row.token.item() == recording.tokens[2].text
    assert row.entropy.item() == recording.layers[5].entropy[0, 3, 2].item()
    assert "decoder.5.max_score.value" in recording.to_numpy()
    pytest.importorskip("pyarrow")
    assert recording.to_arrow().num_rows == len(frame)


def test_a_zarr_group_holds_maps_statistics_and_tokens(recording, tmp_path):
    zarr = pytest.importorskip("zarr")
    recording.to_zarr(tmp_path / "x.zarr")
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="r")
    assert np.array_equal(group["decoder/5/map"][:], recording.maps[5].dense().numpy())
    assert np.array_equal(group["decoder/5/entropy"][:], recording.layers[5].entropy.numpy())
    assert group["tokens/decoder"].shape == tuple(recording.token_ids["decoder"].shape)
    assert group.attrs["text"] == recording.text


def test_attentions_are_those_that_the_model_computes_eagerly(recording):
    model, tokenizer = bundled()
    model.set_attn_implementation("eager")
    with torch.no_grad():
        eager = model(**tokenizer(recording.text, return_tensors="pt"), output_attentions=True).attentions
    for ours, theirs in zip(recording.to_attentions(), (eager[0], eager[5]), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)
    with pytest.raises(RegardError, match="the recording has no vision; its stacks are: decoder"):
        recording.to_attentions("vision")


def test_atlas_and_knockout_are_tables(recording):
    pytest.importorskip("pandas")
    made = recording.atlas()
    assert made.to_pandas().to_dict("records")[0]["layer"] == 0
    one = Candidate(5, " cat", 0.5, 0.25, -0.7)
    cut = Knockout(3, 9, 0.1, (one,), (one,), None, 1.0, 1.5)
    frame = cut.to_pandas()
    assert frame.text.tolist() == [" cat"]
    assert frame.target.tolist() == [False]
    pytest.importorskip("pyarrow")
    assert (made.to_arrow().num_rows, cut.to_arrow().num_rows) == (12, 1)
