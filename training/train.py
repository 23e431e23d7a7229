"""Train the bundled model on what `training.prepare` wrote.

    PYTHONPATH=src python -m training.train [--data .train] [--out FOLDER] [--minutes 8.2] [--smoke]

Writes model.safetensors (bfloat16), config.json, losses.csv, loss.png and evaluation.json. Needs torch, numpy
and jaxtyping; safetensors, matplotlib and tokenizers are used where they are installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

import regard
from training.evaluate import continuations, head_scores, repetition, validation_loss
from training.export import round_to_bfloat16, save_curve, save_losses, save_model
from training.llama import Llama, Shape
from training.rows import LONGEST, SHORTEST, Rows
from training.settings import Settings
from training.tokens import load_tokens


def main() -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(".train"), help="folder training.prepare wrote")
    parser.add_argument("--out", type=Path, default=Path(".train/out"))
    parser.add_argument("--smoke", action="store_true", help="20 small steps, to see that everything works")
    parser.add_argument("--no-compile", dest="compile", action="store_false", default=None)
    for name in ("minutes", "learning_rate", "decay", "weight_decay", "dropout"):
        parser.add_argument("--" + name.replace("_", "-"), type=float)
    for name in ("batch", "repeated", "steps", "seed"):
        parser.add_argument("--" + name, type=int)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    data, out, smoke = given.pop("data"), given.pop("out"), given.pop("smoke")
    settings = dataclasses.replace(Settings.smoke() if smoke else Settings(), **given)
    out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu" if smoke or not torch.cuda.is_available() else "cuda")
    Run(Shape(), settings, data, out, device, start).all()


class Run:
    """One training run: everything that is true from its first step to its last."""

    def __init__(
        self, shape: Shape, settings: Settings, data: Path, out: Path, device: torch.device, start: float
    ) -> None:
        self.shape, self.settings, self.out, self.device, self.start = shape, settings, out, device, start
        self.data = data
        self.facts = json.loads((data / "baselines.json").read_text())
        stream, held_out = (
            torch.from_numpy(load_tokens(data / f"{name}.bin.xz").astype("int32")).to(device)
            for name in ("train", "validation")
        )
        if settings.evaluation_rows is not None:
            held_out = held_out[: settings.evaluation_rows * settings.context]
        # As much text as is held out, from all over the books: how much better the model knows what it read.
        rows = max(1, len(held_out) // settings.context)
        at = torch.linspace(0, len(stream) - settings.context, rows).long().to(device)
        self.seen = stream[at[:, None] + torch.arange(settings.context, device=device)].flatten()
        self.held_out = held_out
        torch.manual_seed(settings.seed)
        torch.set_float32_matmul_precision("high")
        self.rows = Rows(
            stream, self.facts["paragraph_end"], batch=settings.batch, context=settings.context,
            repeated=settings.repeated, vocabulary=shape.vocabulary, seed=settings.seed,
        )  # fmt: skip
        self.model = Llama(shape, settings.dropout).to(device)
        self.losses: list[tuple] = []

    def all(self) -> None:
        """Train, then measure what will be shipped, then write it."""
        self.say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters, {self._machine()}")
        steps = self.train()
        round_to_bfloat16(self.model)
        save_model(self.model, self.out)
        report = self.report(steps)
        (self.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
        baselines = self.facts["nats_per_token"]
        if not save_curve(self.out / "losses.csv", baselines, self.out / "loss.png"):
            self.say("matplotlib is not installed: no loss.png; training.install draws it.")
        self.show(report["samples"]["from_nothing"])
        self.say(f"validation {report['loss']['validation']:.4f}, baselines {baselines}")

    def train(self) -> int:
        """Step until the time or the steps are spent; returns the steps taken."""
        settings = self.settings
        optimizer = self._optimizer()
        loss_of = torch.compile(self.model.loss) if settings.compile else self.model.loss
        self.model.train()
        running, evaluated = None, self.elapsed()
        step = 0
        for step, (ids, targets) in enumerate(self.rows):
            spent = self.elapsed() / (60 * settings.minutes)
            if spent >= 1 or step == settings.steps:
                break
            rate = settings.rate(step, spent)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with self.autocast():
                loss = loss_of(ids, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            running = loss.detach() if running is None else running.lerp(loss.detach(), 0.05)
            if step == 0 or self.elapsed() - evaluated >= settings.evaluate_every:
                self.checkpoint(step + 1, rate, float(running))
                evaluated = self.elapsed()
        self.checkpoint(step, 0.0, math.nan if running is None else float(running))
        return step

    def checkpoint(self, step: int, rate: float, running: float) -> None:
        """Log the losses and save the weights, so that a run that is killed leaves both."""
        self.model.eval()
        train, validation = (self.loss_on(tokens) for tokens in (self.seen, self.held_out))
        self.model.train()
        read = step * self.settings.batch * self.settings.context
        numbers = (round(self.elapsed(), 1), self.rows.epoch, f"{rate:.2e}")
        self.losses.append((step, read, *numbers, *(f"{x:.4f}" for x in (running, train, validation))))
        save_losses(self.losses, self.out / "losses.csv")
        save_model(self.model, self.out)
        self.say(
            f"step {step:5}  {read / 1e6:6.1f} M tokens  epoch {self.rows.epoch}  rate {rate:.1e}  "
            f"batch {running:.3f}  train {train:.3f}  validation {validation:.3f}"
        )

    def loss_on(self, tokens: Tensor) -> float:
        with self.autocast():
            return validation_loss(self.model, tokens, self.settings.context)

    def report(self, steps: int) -> dict:
        """Everything the model card says, measured on the rounded weights in float32."""
        self.model.eval()
        torch.set_float32_matmul_precision("highest")
        context = self.settings.context
        few = self.held_out[: 4 * context].view(-1, context).long()
        # Even samples begin with nothing, odd ones with the opening of a page nobody showed it.
        prompts = torch.zeros(6, 1, dtype=torch.long, device=self.device)
        pages = torch.cat([torch.zeros_like(few[:, :1]), few[:, :24]], 1)
        report = {
            "loss": {
                "train": validation_loss(self.model, self.seen, context),
                "validation": validation_loss(self.model, self.held_out, context),
            },
            "heads": head_scores(self.model, few),
            "repetition": [
                repetition(self.model, period, 8, self.device) for period in self.settings.periods
            ],
            "samples": {
                "from_nothing": continuations(self.model, prompts, self.settings.sample_tokens).tolist(),
                "from_a_page": continuations(self.model, pages, self.settings.sample_tokens).tolist(),
            },
            "run": {
                "steps": steps,
                "tokens": steps * self.settings.batch * context,
                "epochs": self.rows.epoch,
                "seconds": round(self.elapsed(), 1),
                "machine": self._machine(),
                "command": " ".join(["python -m training.train", *sys.argv[1:]]),
                "segments": [SHORTEST, LONGEST],
                "settings": dataclasses.asdict(self.settings),
            },
            "shape": dataclasses.asdict(self.shape) | {"parameters": self.shape.parameters},
            "data": self.facts,
        }
        best = {name: max(map(max, scores)) for name, scores in report["heads"].items()}
        self.say(f"strongest heads: {best}")
        for seen in report["repetition"]:
            self.say(
                f"{seen['period']} random tokens: {seen['first']:.2f}, again: {seen['second']:.2f}, "
                f"strongest induction head {max(map(max, seen['induction'])):.2f}"
            )
        return report

    def show(self, samples: list[list[int]]) -> None:
        """Print what the model wrote, where its tokens can be turned into text."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            return
        tokenizer = Tokenizer.from_file(str(self.data / "tokenizer.json"))
        for ids in samples:
            print(f"---\n{tokenizer.decode(ids)}", flush=True)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def say(self, line: str) -> None:
        print(f"[{self.elapsed():6.1f} s] {line}", flush=True)

    def _optimizer(self) -> torch.optim.Optimizer:
        matrices = [p for p in self.model.parameters() if p.ndim > 1]
        gains = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [
            {"params": matrices, "weight_decay": self.settings.weight_decay},
            {"params": gains, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), fused=self.device.type == "cuda")

    def _machine(self) -> str:
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        return f"{name}, torch {torch.__version__}, regard {regard.__version__}"


if __name__ == "__main__":
    main()
