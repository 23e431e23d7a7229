"""Keys that travel between ranks, against a list of all pairs; and what planning makes of them."""

from __future__ import annotations

import pytest
import torch

from regard.cost import ModelShape, Reach, gpu, plan_ranks, preset, sweep_ranks, traffic
from regard.distributed import Sharding
from regard.distributed.needs import Needs
from regard.distributed.plan import planned
from regard.engine.inputs import Options, problem_of
from regard.errors import RegardError
from regard.masks import Causal, Window

H200 = gpu("H200")


def owners(length: int, ranks: int, layout: str) -> list[list[int]]:
    """The positions of each rank, run by run, dealt out one by one."""
    parts = ranks if layout == "contiguous" else 2 * ranks
    sizes = [length // parts + (part < length % parts) for part in range(parts)]
    runs, start = [], 0
    for size in sizes:
        runs.append(list(range(start, start + size)))
        start += size
    if layout == "contiguous":
        return [[run] for run in runs]
    return [[runs[rank], runs[2 * ranks - 1 - rank]] for rank in range(ranks)]


def allowed(reach: Reach, causal: bool, i: int, j: int) -> bool:
    """Whether query i may see key j."""
    if causal and j > i:
        return False
    if reach.kind == "window":
        return i - j < reach.size
    return reach.kind == "full" or i // reach.size == j // reach.size


@pytest.mark.parametrize("layout", ["contiguous", "head-tail"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    ("reach", "causal"),
    [
        (Reach(), True),
        (Reach(), False),
        (Reach("window", 1), True),
        (Reach("window", 11), True),
        (Reach("chunk", 13), True),
    ],
)
def test_keys_and_pairs_are_those_of_a_list_of_all_pairs(reach, causal, ranks, layout):
    length = 61
    held = owners(length, ranks, layout)
    found = traffic(length, ranks, layout, reach, causal)
    sent, received, pairs = [0] * ranks, [0] * ranks, [0] * ranks
    for rank in range(ranks):
        queries = [i for run in held[rank] for i in run]
        pairs[rank] = sum(allowed(reach, causal, i, j) for i in queries for j in range(length))
        for owner in set(range(ranks)) - {rank}:
            for run in held[owner]:
                wanted = [j for j in run if any(allowed(reach, causal, i, j) for i in queries)]
                count = wanted[-1] - wanted[0] + 1 if wanted else 0
                sent[owner] += count
                received[rank] += count
    assert found.rows.tolist() == [sum(map(len, runs)) for runs in held]
    assert found.pairs.tolist() == pairs
    assert found.sent.tolist() == sent
    assert found.received.tolist() == received


def small(heads: int = 8, kv_heads: int = 4) -> ModelShape:
    return ModelShape.uniform(
        "small", layers=3, d_model=64, heads=heads, kv_heads=kv_heads, head_dim=8, ffn=96, vocab=99
    )


def test_gathering_sends_each_key_and_value_to_those_who_need_it():
    (plan,) = plan_ranks(small(), 61, 4, H200, strategy="gather/contiguous")
    # Rank 0 holds 16 keys that 3 ranks need: 4 heads of 8 numbers for key and for value, 3 layers, 2 bytes.
    assert plan.bytes_sent == 3 * (16 * 3) * (2 * 4 * 8) * 2


def test_dealing_out_heads_sends_inputs_there_and_outputs_back():
    (plan,) = plan_ranks(small(), 60, 2, H200, strategy="heads/contiguous")
    own = 30 * 8 * (4 + 2 * 2)  # queries of 4 heads, keys and values of 2
    assert plan.bytes_sent == 3 * (own + 30 * 8 * 4) * 2


def test_one_rank_sends_nothing():
    for plan in plan_ranks(small(), 61, 1, H200):
        assert plan.bytes_sent == 0
        assert plan.balance == 1


def test_head_and_tail_balance_what_contiguous_runs_do_not():
    plans = {plan.strategy: plan for plan in plan_ranks(preset("llama-3.1-8b"), 2**17, 8, H200)}
    assert plans["ring/head-tail"].balance == pytest.approx(1, abs=1e-4)
    assert plans["ring/contiguous"].balance == pytest.approx(15 / 8, abs=1e-3)


def test_a_ring_hides_the_shorter_of_attending_and_sending():
    (ring,) = plan_ranks(preset("llama-3.1-8b"), 2**20, 8, H200, strategy="ring/head-tail")
    (gather,) = plan_ranks(preset("llama-3.1-8b"), 2**20, 8, H200, strategy="gather/head-tail")
    assert ring.sending < ring.attention
    assert ring.seconds == pytest.approx(gather.seconds - gather.sending)


def test_heads_are_refused_beyond_the_key_heads():
    plans = plan_ranks(preset("llama-3.1-8b"), 2**17, 16, H200)
    refused = {plan.exchange: plan.refusal for plan in plans if plan.refusal}
    assert refused == {"heads": "8 key heads, and each of 16 ranks needs one"}
    assert plans[0].refusal is None


def test_a_window_sends_less_than_all_keys():
    windows = ModelShape.uniform(
        "w", layers=3, d_model=64, heads=8, head_dim=8, ffn=96, vocab=99, pattern=(Reach("window", 5),)
    )
    (plan,) = plan_ranks(windows, 64, 4, H200, strategy="ring/contiguous")
    assert plan.bytes_sent == 3 * 4 * (2 * 8 * 8) * 2


def test_the_sweep_ends_where_a_strategy_is_refused():
    sweep = sweep_ranks(preset("llama-3.1-8b"), 2**17, H200, most=64)
    assert [plan.ranks for plan in sweep["ring/head-tail"]] == [1, 2, 4, 8, 16, 32, 64]
    assert [plan.ranks for plan in sweep["heads/contiguous"]] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "star"}, "there is no strategy 'star'; strategies are: gather/contiguous"),
        ({"ranks": 0}, "0 ranks for 61 tokens; wanted 1 rank or more"),
        ({"ranks": 62}, "62 ranks for 61 tokens"),
    ],
)
def test_impossible_plans_are_refused(options, message):
    given = {"ranks": 2} | options
    with pytest.raises(RegardError, match=message):
        plan_ranks(small(), 61, given.pop("ranks"), H200, **given)


MASKS = [(Causal(), Reach()), (Causal() & Window(9), Reach("window", 9))]
CUTS = {"contiguous": Sharding.contiguous, "head-tail": Sharding.head_tail}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("layout", CUTS)
@pytest.mark.parametrize(("mask", "reach"), MASKS)
def test_the_exchange_layer_counts_the_same_keys(mask, reach, layout, ranks):
    """Its own tests hold it to the bytes of real runs."""
    held = CUTS[layout](61, ranks)
    needs, found = Needs(mask, held, held), traffic(61, ranks, layout, reach)
    assert found.sent.tolist() == [needs.sent(rank) for rank in range(ranks)]
    assert found.received.tolist() == [needs.received(rank) for rank in range(ranks)]
    assert found.rows.tolist() == list(held.sizes)


@pytest.mark.parametrize("exchange", ["gather", "ring", "heads"])
@pytest.mark.parametrize("layout", CUTS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_exchange_layer_counts_the_same_bytes(exchange, layout, ranks):
    """Of the rank that sends most, in bfloat16, over the 3 layers of a model."""
    q, k = torch.zeros(1, 8, 61, 8), torch.zeros(1, 4, 61, 8)
    problem = problem_of(q.bfloat16(), k.bfloat16(), k.bfloat16(), Options(Causal()))
    held = CUTS[layout](61, ranks)
    needs = Needs(Causal(), held, held)
    most = max(planned(problem, needs, rank, exchange, None).forward_bytes for rank in range(ranks))
    (plan,) = plan_ranks(small(), 61, ranks, H200, strategy=f"{exchange}/{layout}")
    assert plan.bytes_sent == 3 * most
