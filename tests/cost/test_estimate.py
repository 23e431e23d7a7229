"""Estimates, times, tables and the command."""

from __future__ import annotations

import json
from functools import partial

import pytest

from regard.cost import (
    GPUS,
    Gpu,
    Work,
    context_of,
    estimate,
    gpu,
    parameters,
    preset,
    roofline,
    size_of,
    this_machine,
)
from regard.cost.units import in_bytes, in_count
from regard.errors import DeviceError, RegardError


@pytest.fixture
def run(run):
    """Runs `regard cost`."""
    return partial(run, "cost")


def test_the_longer_of_arithmetic_and_memory_bounds_the_time():
    processor = Gpu("toy", flops=100.0, bandwidth=10.0)
    busy = roofline(Work({"x": 1000}, {"y": 50}), processor)
    idle = roofline(Work({"x": 100}, {"y": 50}), processor)
    assert (busy.seconds, busy.bound) == (10.0, "compute")
    assert (idle.seconds, idle.bound) == (5.0, "memory")


def test_a_long_prefill_is_bound_by_compute_and_a_token_by_memory():
    at = estimate("llama-3.1-8b", [32768], processor="H100").at[0]
    assert (at.prefill_time.bound, at.decode_time.bound) == ("compute", "memory")


@pytest.mark.parametrize("name", ["A100-80GB", "H100", "H200", "B200", "L4", "RTX-4090"])
def test_the_usual_gpus_are_in_the_table(name):
    found = GPUS[name]
    assert 1e13 < found.flops < 1e16
    assert 1e11 < found.bandwidth < 1e13


def test_a_gpu_is_found_under_other_spellings():
    assert gpu("nvidia h200") == gpu("H200")
    assert gpu("a100").name == "A100-80GB"


def test_an_unknown_gpu_lists_those_known():
    with pytest.raises(
        DeviceError, match=r"no GPU 'H300' in the table; it has A100-40GB, .*MI300X, and here"
    ):
        gpu("H300")


def test_this_machine_is_measured():
    found = this_machine(0.01)
    assert "measured" in found.name
    assert 1e6 < found.flops < 1e16
    assert 1e6 < found.bandwidth < 1e14


@pytest.mark.gpu
def test_a_measured_gpu_stays_below_its_data_sheet():
    import torch

    found = this_machine()
    assert torch.cuda.get_device_name() in found.name
    sheet = next((known for name, known in GPUS.items() if name in found.name.replace(" ", "-")), None)
    if sheet is not None:
        assert 0.3 * sheet.flops < found.flops < sheet.flops
        assert 0.3 * sheet.bandwidth < found.bandwidth < sheet.bandwidth


def test_a_context_beyond_the_trained_length_is_warned_about():
    with pytest.warns(UserWarning, match="gpt2 was trained for 1024 tokens; beyond that: 1025, 4096"):
        found = estimate("gpt2", [63, 1024, 1025, 4096])
    assert len(found.at) == 4
    assert any("1025, 4096" in note for note in found.notes)


def test_the_usual_contexts_end_at_the_trained_length():
    assert [at.context for at in estimate("gpt2").at] == [1024]
    assert [at.context for at in estimate("mistral-7b").at] == [1024, 4096, 32768]


def test_no_contexts_are_refused():
    with pytest.raises(RegardError, match="no contexts were given"):
        estimate("gpt2", [])


def test_the_cache_may_be_stored_smaller_than_the_weights():
    full, small = (estimate("llama-7b", [2048], cache_dtype=dtype).at[0] for dtype in (None, "int8"))
    assert full.memory - small.memory == 2048 * 2 * 32 * 4096
    assert full.decode.bytes > small.decode.bytes
    assert full.decode.bytes_by_part["weights"] == small.decode.bytes_by_part["weights"]


def test_a_figure_draws_what_grows():
    flops, stored = estimate("llama-7b", [2048]).figure().axes
    lines = {line.get_label(): line.get_ydata() for line in stored.get_lines()}
    # Four times the context, sixteen times the scores; a cache grows by four.
    dense, kept = lines["scores of one layer if kept"], lines["cache in bfloat16"]
    assert (dense[-1] / dense[-3], kept[-1] / kept[-3]) == (16, 4)
    assert [line.get_label() for line in flops.get_lines()] == ["prefill", "one token"]


def test_a_figure_has_one_axis_for_each_unit():
    axes = estimate("llama-7b", [2048]).figure().axes
    assert [each.get_ylabel() for each in axes] == ["FLOPs", "bytes"]


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("4k", 4096), ("128K", 131072), ("1M", 2**20), ("0.5k", 512)]
)
def test_contexts_are_read(text, tokens):
    assert context_of(text) == tokens


@pytest.mark.parametrize("text", ["", "k", "-3", "4kb", "0", "1e3"])
def test_a_context_that_cannot_be_read_is_refused(text):
    with pytest.raises(RegardError, match=r"cannot be read; wanted a length such as 4096 or 128k"):
        context_of(text)


def test_sizes_tell_decimal_from_binary():
    assert (size_of("24GB"), size_of("24 GiB"), size_of("100")) == (24 * 10**9, 24 * 2**30, 100)


def test_short_numbers_never_show_an_exponent():
    assert [in_bytes(n) for n in (999, 999_499, 999_500)] == ["999 B", "999 kB", "1 MB"]
    assert in_count(10**21) == "1 Z"


def test_the_command_prints_a_preset_by_context(run):
    status, out, _ = run("llama-4-maverick", "--context", "4k,32k,128k", "--gpu", "H200")
    assert status == 0
    for shown in ("3,019,898,880", "128k", "chunk:8192", "full", "H200", "int4"):
        assert shown in out


def test_the_command_gives_every_number_as_json(run):
    status, out, _ = run("llama-7b", "--context", "2k", "--json", "--budget", "24GB")
    assert status == 0
    said = json.loads(out)
    assert said["parameters"]["total"] == parameters(preset("llama-7b")).total
    assert said["longest_context"] == 20071
    assert said["contexts"][0]["cache_bytes"]["bfloat16"] == 2**30
    assert len(said["contexts"][0]["layers"]) == 32


def test_the_command_reads_a_config_file(run, tmp_path):
    config = {
        "model_type": "gpt2",
        "n_embd": 48,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 151,
        "n_positions": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, out, err = run("config.json", "--context", "64", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["layers"] == {"full": 2}


def test_the_command_takes_a_shape_by_flags_and_a_pattern(run):
    flags = ["--layers", "8", "--d-model", "64", "--heads", "4", "--ffn", "256", "--vocab", "100"]
    status, out, _ = run(*flags, "--attention", "chunk:8k*3,full", "--json", "--context", "63")
    assert status == 0
    assert json.loads(out)["layers"] == {"chunk:8192": 6, "full": 2}


def test_the_command_warns_about_contexts_beyond_the_trained_length(run):
    status, _, err = run("gpt2", "--context", "2k")
    assert status == 0
    assert "note: gpt2 was trained for 1024 tokens; beyond that: 2048" in err


def test_the_command_draws(run, tmp_path):
    assert run("gpt2", "--plot", "cost.png")[0] == 0
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


def test_the_command_lists_presets_and_printed_numbers(run):
    assert "deepseek-v3" in run("--presets")[1]
    said = {one["what"]: one["verdict"] for one in json.loads(run("--printed", "--json")[1])}
    assert said["2 / √64"] == "wrong"
    assert "wrong" in run("--printed")[1]
    assert any(one["name"] == "gpt2" for one in json.loads(run("--presets", "--json")[1]))


def test_each_layer_has_a_row_where_asked(run):
    plain, each = run("gpt2")[1], run("gpt2", "--each-layer")[1]
    assert len(each.splitlines()) - len(plain.splitlines()) == 11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model was named; wanted a preset (transformer-base"),
        (["nope"], "there is no preset 'nope'"),
        (["missing/config.json"], "there is no config at missing/config.json"),
        (["gpt2", "--layers", "3"], "gpt2 has its own sizes; leave out --layers, or leave out the model."),
        (
            ["--layers", "3", "--ffn", "8"],
            "also needs --d-model, --heads, --vocab; --layers, --ffn were given",
        ),
        (["gpt2", "--gpu", "abacus"], "there is no GPU 'abacus' in the table; it has A100-40GB"),
        (["gpt2", "--budget", "much"], "'much' cannot be read; wanted a size such as 80GB"),
        (["gpt2", "--context", "4k,"], "'' cannot be read; wanted a length"),
        (["gpt2", "--dtype", "int3"], "dtype is 'int3'; wanted one of float32"),
        (["gpt2", "--plot", "x.txt"], "x.txt has the ending '.txt'; wanted one of .png"),
        (["gpt2", "--attention", "chunk:8k*0"], "wanted a number of layers after *"),
        (["gpt2", "--batch", "0"], "batch is 0; wanted a whole number"),
    ],
)
def test_the_command_refuses_in_one_line(run, arguments, message):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("regard: ")
    assert message in err
    assert err.count("\n") == 1
