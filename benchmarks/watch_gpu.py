"""Recording a 1B model on a GPU, a long text, completely, to disk: time, peak memory, size.

python benchmarks/watch_gpu.py [--n 8192 65536]

After each recording, `dd` writes as many bytes with `conv=fsync`. Kernels are compiled before; that is not
measured.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from disk import dd
from side_by_side import header

from regard import ColumnMass, Decay, Pooled, TopK, explain_dispatch
from regard.masks import Causal
from regard.models import Recording, record
from regard.models.sizes import spoken
from regard.stats import Entropy, MaxScore, MeanDistance, SinkMass

ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass()]


def everything(n: int) -> list:
    return [*ROWS, ColumnMass(), Decay(), Pooled(max(1, n // 256), "both"), TopK(8)]


def billion() -> Any:
    """The shape of a 1B Llama with random weights in bfloat16."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def tell(done: int, total: int) -> None:
    """How far a run is, for those who wait: on stderr, so that the results stay a page."""
    print(f"  {done}/{total} layers, {time.strftime('%X')}", end="\r", file=sys.stderr, flush=True)


def measured(run: Callable[[], object]) -> tuple[float, int, object]:
    """Seconds, the extra bytes of GPU memory at the peak, and what came out."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    result = run()
    torch.cuda.synchronize()
    return time.perf_counter() - start, torch.cuda.max_memory_allocated() - before, result


@torch.no_grad()
def compare(model: Any, n: int, folder: Path) -> None:
    ids = torch.randint(1, 100_000, (1, n), generator=torch.Generator().manual_seed(0))
    on_gpu = ids.cuda()

    def unobserved() -> object:
        model(on_gpu, use_cache=False, logits_to_keep=1)
        return None

    def recorded(stats: list, **options: Any) -> Callable[[], object]:
        return lambda: record(model, ids, stats=stats, progress=tell, **options)

    cases = {
        "sdpa, unobserved": unobserved,
        "record, row statistics, to disk": recorded(ROWS, store=folder / "rows.regard"),
        "record, everything, to disk": recorded(everything(n), store=folder / "all.regard"),
        "record, row statistics, kept on the GPU": recorded(ROWS),
    }
    print(f"## {n} tokens\n\n| who | s | time / unobserved | of dd's speed | extra GPU memory | recording |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    unobserved()
    for stats in (ROWS, everything(n)):  # compiles kernels
        record(model, ids, stats=stats, layers=[0])
    baseline = None
    for name, run in cases.items():
        try:
            seconds, extra, result = measured(run)
        except torch.cuda.OutOfMemoryError:
            print(f"| {name} | out of memory | | | | |", flush=True)
            continue
        baseline = baseline or seconds
        size = spoken(result.nbytes) if isinstance(result, Recording) else ""
        ratio = f"{seconds / baseline:.2f}"
        beside = ""
        if isinstance(result, Recording) and result.path is not None:
            beside = f"{dd_seconds(folder / 'dd', result.nbytes) / seconds:.2f}"
        print(f"| {name} | {seconds:.2f} | {ratio} | {beside} | {spoken(extra)} | {size} |", flush=True)
        del result
    print(f"\n{opened(folder / 'rows.regard', n)}\n", flush=True)
    for path in folder.iterdir():
        shutil.rmtree(path)


def dd_seconds(path: Path, size: int) -> float:
    start = time.perf_counter()
    dd(path, size)
    seconds = time.perf_counter() - start
    path.unlink()
    return seconds


def opened(path: Path, n: int) -> str:
    """Open what was written, and look at the last row of the last layer."""
    start = time.perf_counter()
    recording = Recording.open(path)
    ready = time.perf_counter()
    last = recording.layers[len(recording.layers) - 1]
    row = last.map[0, 0, n - 1 : n, :]
    seen = time.perf_counter()
    whole = "complete" if recording.complete and len(recording.layers) == 16 else "INCOMPLETE"
    return (
        f"The recording is {whole}: {len(recording.layers)} layers. It opens in {1e3 * (ready - start):.0f} "
        f"ms; the last row of the last layer, checksum included, takes {seen - ready:.2f} s and sums to "
        f"{float(row.sum()):.4f}."
    )


def backend_used() -> str:
    q = torch.randn(1, 32, 256, 64, device="cuda", dtype=torch.bfloat16)
    return str(explain_dispatch(q, q[:, ::4], q[:, ::4], mask=Causal()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[8192, 65536])
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    with tempfile.TemporaryDirectory() as folder:
        header(
            "Recording a 1B Llama shape on a GPU, bfloat16, random weights",
            "each case once, one process; ratios are taken within this run",
        )
        print(f"- attention: {backend_used()}\n", flush=True)
        model = billion()
        with torch.no_grad():  # kernels load on the first call
            record(model, list(range(300)), stats=everything(300))
            model(torch.ones(1, 300, dtype=torch.long, device="cuda"), use_cache=False)
        for n in args.n:
            compare(model, n, Path(folder))


if __name__ == "__main__":
    main()
