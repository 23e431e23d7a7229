"""What a run leaves behind: weights and config as transformers reads them, the losses, and their curve."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from training.hybrid import Hybrid

__all__ = ["COLUMNS", "round_to_bfloat16", "save_curve", "save_losses", "save_model"]

COLUMNS = ("step", "tokens", "seconds", "epoch", "learning_rate", "batch", "train", "validation")


def round_to_bfloat16(model: nn.Module) -> None:
    """Round the weights in place to what the file will hold, so that what is measured is what is shipped."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())


def save_model(model: Hybrid, folder: Path) -> Path:
    """Write the weights in bfloat16 and config.json; the old weights stay until the new ones are whole."""
    weights = {name: x.detach().bfloat16().cpu().contiguous() for name, x in model.state_dict().items()}
    (folder / "config.json").write_text(json.dumps(model.shape.to_config(), indent=2) + "\n")
    partial = folder / "weights.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    return partial.rename(folder / "model.safetensors")


def save_losses(rows: list[tuple], path: Path) -> None:
    """Write the losses as CSV, one line per evaluation."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def save_curve(losses: Path, baselines: dict[str, float], path: Path) -> bool:
    """Draw the losses of a CSV over tokens, with the n-gram baselines; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with losses.open() as file:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    tokens = [row["tokens"] / 1e6 for row in rows]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(tokens, [row["train"] for row in rows], color="#9aa5b1", label="text it was trained on")
    axes.plot(tokens, [row["validation"] for row in rows], color="#1f5fa8", label="books it never saw")
    for name in ("bigram", "5-gram"):
        if name in baselines:
            axes.axhline(baselines[name], color="#c06c3c", linewidth=1, linestyle=":")
            axes.text(tokens[-1], baselines[name], f"{name} {baselines[name]:.2f}", ha="right", va="bottom")
    axes.set(xlabel="million tokens read", ylabel="loss, nats per token", ylim=(2, 6))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
