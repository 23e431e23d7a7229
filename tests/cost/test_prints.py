"""Every printed number, held to what is counted."""

from __future__ import annotations

from decimal import Decimal

import pytest

from regard.claims import CLAIMS
from regard.cost import Print, parameters, preset, prints, scores

# d_model, heads, d_k where it is printed.
SHAPES = {
    "transformer-base": (512, 8, 64),
    "transformer-big": (1024, 16, 64),
    "bert-base": (768, 12, None),
    "gpt2": (768, 12, None),
    "gpt3-175b": (12288, 96, None),
    "llama-7b": (4096, 32, None),
    "llama-4-maverick": (5120, 40, 128),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_preset_has_the_printed_shape(name):
    d_model, heads, d_k = SHAPES[name]
    shape = preset(name)
    attention = shape.layers[0].attention
    assert (shape.d_model, attention.heads) == (d_model, heads)
    assert attention.head_dim == (d_k or d_model // heads)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "llama-4-maverick"])
def test_plain_attention_has_four_square_matrices(name):
    shape = preset(name)
    assert sum(shape.layers[0].attention.weights(shape.d_model).values()) == 4 * shape.d_model**2


def test_maverick_has_the_printed_layers():
    shape = preset("llama-4-maverick")
    assert (len(shape.layers), shape.vocab, shape.layers[0].attention.kv_heads) == (48, 202048, 8)
    # Every fourth layer is global, the others see chunks of 8192.
    assert [repr(layer.reach) for layer in shape.layers] == (["chunk:8192"] * 3 + ["full"]) * 12


@pytest.mark.parametrize(
    ("matrix", "printed"), [("w_q", 26214400), ("w_k", 5242880), ("w_v", 5242880), ("w_o", 26214400)]
)
def test_mavericks_projections_are_as_printed(matrix, printed):
    shape = preset("llama-4-maverick")
    assert shape.layers[0].attention.weights(shape.d_model)[matrix] == printed


def test_mavericks_attention_is_printed_rounded():
    shape = preset("llama-4-maverick")
    assert shape.layers[0].attention.parameters(5120) == 62_914_560
    assert parameters(shape).attention == 3_019_898_880
    assert Print("a layer", "62.9M", 62_914_560).verdict == "rounded"
    assert Print("all layers", "3.0B", 3_019_898_880).verdict == "rounded"


def test_eight_key_heads_for_forty_query_heads_make_a_fifth_of_the_cache():
    attention = preset("llama-4-maverick").layers[0].attention
    assert attention.cached * 5 == 2 * attention.heads * attention.head_dim


@pytest.mark.parametrize(
    ("n", "entries", "size"),
    [(1, "1M", "4 MB"), (4, "16M", "64 MB"), (32, "1B", "4 GB"), (128, "16B", "64 GB")],
)
def test_the_float32_table_is_exact_where_k_is_1024(n, entries, size):
    found = scores(n * 1024, dtype="float32")
    assert Print("entries", entries, found.entries).verdict == "binary"
    assert Print("bytes", size, found.bytes).verdict == "binary"


@pytest.mark.parametrize("n", [1, 4, 32, 128])
def test_the_float32_table_is_not_exact_where_k_is_1000(n):
    found = scores(n * 1000, dtype="float32")
    assert (found.entries, found.bytes) == (n * n * 10**6, 4 * n * n * 10**6)
    printed = {1: "1M", 4: "16M", 32: "1B", 128: "16B"}[n]
    # 1K and 4K come out under either reading; 32² is 1024 and not 1000, which printing 1B rounds away.
    assert Print("entries", printed, found.entries).verdict == ("exact" if n < 32 else "rounded")


@pytest.mark.parametrize(
    ("n", "entries", "flops", "size"),
    [
        (1000, 1e6, 256e6, 2e6),
        (10000, 1e8, 25.6e9, 2e8),
        (100000, 1e10, 2.56e12, 2e10),
        (1000000, 1e12, 256e12, 2e12),
    ],
)
def test_the_float16_table_is_exact(n, entries, flops, size):
    found = scores(n, head_dim=128, dtype="float16")
    assert (found.entries, found.flops, found.bytes) == (entries, flops, size)


def test_about_two_gigabytes_is_exactly_two_gibibytes():
    found = scores(32 * 1024, dtype="float16")
    assert found.bytes == 2 * 2**30
    assert Print("32k", "about 2 GB", found.bytes).verdict == "binary"


@pytest.mark.parametrize(
    ("logit", "printed", "exact", "said"),
    [
        (18, "2.3", "2.25", "rounded"),
        (2, "0.26", "0.25", "wrong"),
        (-2, "-0.20", "-0.25", "wrong"),
        (1, "0.10", "0.125", "wrong"),
    ],
)
def test_of_logits_over_eight_one_is_printed_rounded_and_three_are_wrong(logit, printed, exact, said):
    found = next(one for one in prints() if one.what == f"{logit} / √64")
    assert (found.printed, found.exact, found.verdict) == (printed, Decimal(exact), said)


def test_the_printed_numbers_that_are_wrong_are_those_of_the_ledger():
    wrong = [one for one in prints() if one.verdict == "wrong"]
    assert [one.what for one in wrong] == ["2 / √64", "-2 / √64", "1 / √64"]
    ledger = CLAIMS["row-prints"].measure()["wrong"]["(18, 2, −2, 1) / √64"]
    assert all(f"{one.printed} should be" in ledger for one in wrong)
    assert ledger.count("should be") == len(wrong)


@pytest.mark.parametrize(
    ("printed", "exact", "said"),
    [
        ("1.0B", 1_049_999_999, "rounded"),
        ("1.0B", 1_050_000_001, "rounded binary"),
        ("1.0B", 2_000_000_000, "wrong"),
        ("1000", 1001, "wrong"),
        ("1000", 1000, "exact"),
    ],
)
def test_a_verdict_can_come_out_in_every_way(printed, exact, said):
    assert Print("x", printed, exact).verdict == said
