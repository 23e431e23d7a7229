"""The atlas of the bundled model: time and peak memory, next to the same numbers from eager attentions.

python benchmarks/atlas.py [--quick] [--most 65536]

Beyond the bundled model's context the text goes on and the model with it: what it says there is of no
interest, how long it takes to look is. CPU seconds are those of all threads together. On a machine that is
busy with other things they mean more than seconds on the clock, with one thread (--threads 1) most of all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from memory import resident
from side_by_side import header

from regard.models import bundled, sample_text, watch

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
# Eager attentions of all 64 heads take 256 n² bytes: 16 GiB at 8192 tokens.
EAGER_MOST = 4096


def story(tokenizer: Any, n: int) -> torch.Tensor:
    """The bundled story, as often as it takes, its lines in another order each time: nothing has a period."""
    lines = sample_text().splitlines(keepends=True)
    generator = torch.Generator().manual_seed(0)
    text = "".join(lines)
    ids = tokenizer(text)["input_ids"]
    while len(ids) < n:
        order = torch.randperm(len(lines), generator=generator).tolist()
        ids += tokenizer("".join(lines[i] for i in order), add_special_tokens=False)["input_ids"]
    return torch.tensor(ids[:n])[None]


def atlas_of_recording(model: Any, tokenizer: Any, ids: torch.Tensor) -> int:
    """Watch the model, then survey every head."""
    with watch(model, stats=[], tokenizer=tokenizer) as recording:
        model(ids, logits_to_keep=1)
    return len(recording.atlas().heads)


def watch_only(model: Any, tokenizer: Any, ids: torch.Tensor) -> int:
    """The part of it that is not the atlas."""
    with watch(model, stats=[], tokenizer=tokenizer) as recording:
        model(ids, logits_to_keep=1)
    return len(recording.all_layers)


def from_eager(model: Any, tokenizer: Any, ids: torch.Tensor) -> int:
    """The same sums from the maps that transformers returns: plain PyTorch over dense matrices."""
    model.set_attn_implementation("eager")
    attentions = model(ids, output_attentions=True, logits_to_keep=1).attentions
    n, tokens = ids.shape[1], ids[0]
    place = torch.arange(n)
    same = (tokens[:, None] == tokens).tril(-1)
    after = torch.nn.functional.pad(same, (1, 0))[:, :-1]
    distance = (place[:, None] - place).clamp(min=0).flatten()
    late = place >= n // 2
    count = 0
    for layer in attentions:
        for head in layer[0]:
            by_distance = torch.zeros(n).index_add_(0, distance, head.flatten())
            late_decay = torch.zeros(n).index_add_(
                0, distance.view(n, n)[late].flatten(), head[late].flatten()
            )
            found = [by_distance, late_decay, head.sum(0), head.max(-1).values, (head * same).sum(-1)]
            found += [(head * after).sum(-1), -torch.special.xlogy(head, head).sum(-1)]
            count += all(bool(x.isfinite().all()) for x in found)
    return count


CASES = {"watch alone": watch_only, "watch and atlas": atlas_of_recording, "eager attentions": from_eager}


@torch.no_grad()
def measure(case: str, n: int) -> None:
    """Print the seconds of one run after a short one, and the extra bytes at its peak."""
    model, tokenizer = bundled()
    CASES[case](model, tokenizer, story(tokenizer, 128))
    ids = story(tokenizer, n)
    Path("/proc/self/clear_refs").write_text("5")
    before, start, worked = resident("VmRSS"), time.perf_counter(), time.process_time()
    CASES[case](model, tokenizer, ids)
    print(time.perf_counter() - start, time.process_time() - worked, resident("VmHWM") - before)


def run(case: str, n: int, threads: int) -> tuple[float, ...] | None:
    command = [sys.executable, __file__, "--threads", str(threads), "--measure", case, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode else tuple(float(x) for x in done.stdout.split()[-3:])


def compare(n: int, threads: int) -> None:
    print(f"## {n} tokens\n\n| who | s | CPU s | CPU s / eager | extra MiB | memory / eager |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    cases = [case for case in CASES if n <= EAGER_MOST or not case.startswith("eager")]
    found = {case: run(case, n, threads) for case in cases}
    eager = found.get("eager attentions")
    for case in CASES:
        one = found.get(case)
        if one is None:
            print(f"| {case} | does not fit here | | | | |")
            continue
        time_ratio, memory_ratio = (
            ("–", "–") if eager is None else (f"{one[i] / eager[i]:.2f}" for i in (1, 2))
        )
        times = f"{one[0]:.2f} | {one[1]:.2f} | {time_ratio}"
        print(f"| {case} | {times} | {one[2] / 2**20:.0f} | {memory_ratio} |", flush=True)
    print(flush=True)


def about() -> None:
    """The header, and how busy the machine was with other things."""
    load = f"load average at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    how = "each case once, after a short warm-up, in a process of its own; ratios are taken within this run"
    header("The atlas of the bundled model (8 layers, 64 heads), float32", f"{how}\n- {load}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--most", type=int, default=LENGTHS[-1], help="the longest text")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of PyTorch")
    parser.add_argument("--measure", nargs=2, metavar=("CASE", "N"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.measure:
        measure(args.measure[0], int(args.measure[1]))
        return
    about()
    for n in (512,) if args.quick else [n for n in LENGTHS if n <= args.most]:
        compare(n, args.threads)


if __name__ == "__main__":
    main()
