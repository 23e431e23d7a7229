"""Train the bundled model on what `training.prepare` wrote.

    PYTHONPATH=src python -m training.train [--data .train] [--out FOLDER] [--minutes 8.2] [--smoke]

Writes model.safetensors (bfloat16), config.json, losses.csv, loss.png and evaluation.json, and every minute
state.pt in `--state`, from which `--resume` goes on. Needs torch, numpy, jaxtyping and safetensors;
matplotlib and tokenizers are used where they are installed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

import regard
from training.evaluate import (
    apart,
    continuations,
    head_scores,
    losses_by_position,
    needles,
    repetition,
    validation_loss,
)
from training.export import round_to_bfloat16, save_curve, save_losses, save_model
from training.facts import load_facts
from training.hybrid import Hybrid, Shape
from training.muon import Muon
from training.rows import PARTS, SHORTEST, Batch, Rows
from training.settings import Settings
from training.tokens import load_tokens

# Of the facts, so many are never trained on: they are the needles of the evaluation.
UNSEEN = 1000


def main() -> None:
    start = time.monotonic()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(".train"), help="folder training.prepare wrote")
    parser.add_argument("--out", type=Path, default=Path(".train/out"))
    parser.add_argument("--state", type=Path, help="folder of state.pt, by default --out")
    parser.add_argument("--resume", action="store_true", help="go on from state.pt, where there is one")
    parser.add_argument("--smoke", action="store_true", help="20 small steps, to see that everything works")
    parser.add_argument("--no-compile", dest="compile", action="store_false", default=None)
    for name in ("minutes", "learning_rate", "matrix_rate", "decay", "weight_decay", "dropout"):
        parser.add_argument("--" + name.replace("_", "-"), type=float)
    for name in ("tokens", "steps", "seed", "needles", "warmup"):
        parser.add_argument("--" + name, type=int)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    data, out, smoke = given.pop("data"), given.pop("out"), given.pop("smoke")
    state, resume = given.pop("state", out), given.pop("resume")
    settings = dataclasses.replace(Settings.smoke() if smoke else Settings(), **given)
    for folder in (out, state):
        folder.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu" if smoke or not torch.cuda.is_available() else "cuda")
    run = Run(Shape(), settings, data, out, device, start, state / "state.pt")
    if resume:
        run.resume()
    run.all()


class Run:
    """One training run: everything that is true from its first step to its last."""

    def __init__(
        self, shape: Shape, settings: Settings, data: Path, out: Path, device: torch.device, start: float,
        state: Path | None = None,
    ) -> None:  # fmt: skip
        self.shape, self.settings, self.out, self.device, self.start = shape, settings, out, device, start
        self.data, self.state = data, state
        self.facts = json.loads((data / "baselines.json").read_text())
        streams = (
            torch.from_numpy(load_tokens(data / f"{name}.bin.xz").astype("int32")).to(device)
            for name in ("train", "validation", "long")
        )
        self.stream, held_out, long = streams
        if settings.evaluation_rows is not None:
            held_out = held_out[: settings.evaluation_rows * settings.evaluation_context]
        # As much text as is held out, from all over the books: how much better the model knows what it read.
        context = settings.evaluation_context
        at = torch.linspace(0, len(self.stream) - context, max(1, len(held_out) // context)).long().to(device)
        self.seen = self.stream[at[:, None] + torch.arange(context, device=device)].flatten()
        self.held_out, self.long = held_out, self._beginnings(long)
        planted = load_facts(data / "facts.json.xz")
        self.asked, self.planted = planted[:UNSEEN], planted[UNSEEN:]
        torch.manual_seed(settings.seed)
        torch.set_float32_matmul_precision("high")
        self.model = Hybrid(shape, settings.dropout).to(device)
        self.losses: list[tuple] = []
        self.optimizers = self._optimizers()
        self.step, self.read, self.trained, self.before = 0, 0, 0.0, 0.0
        self.rows: dict[int, Rows] = {}

    def all(self) -> None:
        """Train, then measure what will be shipped, then write it."""
        self.say(f"{sum(p.numel() for p in self.model.parameters()):,} parameters, {self._machine()}")
        self.train()
        round_to_bfloat16(self.model)
        save_model(self.model, self.out)
        report = self.report()
        baselines = self.facts["nats_per_token"]
        if not save_curve(self.out / "losses.csv", baselines, self.out / "loss.png"):
            self.say("matplotlib is not installed: no loss.png; training.install draws it.")
        self.show(report["samples"]["from_nothing"])
        self.say(f"validation {report['loss']['validation']:.4f}, baselines {baselines}")

    def train(self) -> None:
        """Step until the time or the steps are spent."""
        settings = self.settings
        batches = {context: self._batches(context) for context in settings.contexts}
        self.model.train()
        self._warm_up()
        # Compiling is no training: the clock of the learning rate starts here.
        started, self.before = time.monotonic(), self.trained
        running, evaluated, saved = None, -math.inf, time.monotonic()
        while True:
            self.trained = self.before + time.monotonic() - started
            elapsed = self.trained / (60 * settings.minutes)
            if elapsed >= 1 or self.step == settings.steps:
                break
            rate = settings.rate(self.step, elapsed)
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = group["peak"] * rate
            contexts = settings.stage(settings.spent(self.step, elapsed)).contexts
            parts = [self._backward(next(batches[context]), 1 / len(contexts)) for context in contexts]
            self._update()
            self.step, self.read = self.step + 1, self.read + settings.tokens * len(contexts)
            # The shortest context is read in every stage: the last part.
            running = parts[-1] if running is None else running.lerp(parts[-1], 0.05)
            if self.trained - evaluated >= settings.evaluate_every:
                self.checkpoint(rate, float(running))
                evaluated = self.trained
            if time.monotonic() - saved >= 60:
                self.save()
                saved = time.monotonic()
        self.checkpoint(0.0, math.nan if running is None else float(running))
        self.save()

    def _warm_up(self) -> None:
        """One pass forth and back at each context, and its time: kernels are compiled and chosen here."""
        if self.settings.compile:
            self.model.compile_pieces()
        for context in self.settings.contexts:
            rows = iter(self._rows(context, seed=-1))
            for _ in range(3 if self.device.type == "cuda" else 1):
                start = time.monotonic()
                loss = float(self._backward(next(rows), 1.0))
                took = time.monotonic() - start
            self.say(f"{context:6} tokens: loss {loss:.3f}, {took * 1e3:.0f} ms forth and back")
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _backward(self, batch: Batch, share: float) -> Tensor:
        with self.autocast():
            loss = self.model.loss(*batch)
        (loss * share).backward()
        return loss.detach()

    def _update(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _rows(self, context: int, seed: int) -> Rows:
        settings = self.settings
        batch = max(1, settings.tokens // context)
        return Rows(
            self.stream, self.facts["paragraph_end"], batch=batch, context=context,
            repeated=settings.repeated, planted=settings.planted, facts=self.planted,
            sentence_ends=self.facts["sentence_ends"], vocabulary=self.shape.vocabulary, seed=seed,
        )  # fmt: skip

    def _batches(self, context: int) -> Iterator[Batch]:
        # A run that goes on reads other rows than it has read before it stopped.
        seed = self.settings.seed + 1000 * self.step + context
        self.rows[context] = self._rows(context, seed)
        return iter(self.rows[context])

    def checkpoint(self, rate: float, running: float) -> None:
        """Log the losses and save the weights, so that a run that is killed leaves both."""
        self.model.eval()
        train, validation = (self.loss_on(tokens) for tokens in (self.seen, self.held_out))
        self.model.train()
        epoch = round(self.read / len(self.stream), 2)
        numbers = (round(self.trained, 1), epoch, f"{rate:.2e}")
        self.losses.append(
            (self.step, self.read, *numbers, *(f"{x:.4f}" for x in (running, train, validation)))
        )
        save_losses(self.losses, self.out / "losses.csv")
        save_model(self.model, self.out)
        self.say(
            f"step {self.step:5}  {self.read / 1e6:6.1f} M tokens  epoch {epoch}  rate {rate:.2f}  "
            f"batch {running:.3f}  train {train:.3f}  validation {validation:.3f}"
        )

    def save(self) -> None:
        """Everything the run needs to go on; the old state stays until the new one is whole."""
        if self.state is None:
            return
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": [self.step, self.read, self.trained],
            "losses": self.losses,
        }
        partial = self.state.with_suffix(".partial")
        torch.save(state, partial)
        partial.rename(self.state)

    def resume(self) -> None:
        """Go on where an earlier run stopped, if it left a state."""
        if self.state is None or not self.state.exists():
            return
        state = torch.load(self.state, map_location=self.device, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, old in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(old)
        self.step, self.read, self.trained = state["progress"]
        self.losses = [tuple(row) for row in state["losses"]]
        self.say(f"going on from step {self.step}, {self.trained:.0f} s trained")

    def loss_on(self, tokens: Tensor) -> float:
        with self.autocast():
            return validation_loss(self.model, tokens, self.settings.evaluation_context)

    def report(self) -> dict:
        """Everything the model card says, measured on the rounded weights; losses and maps in float32.

        What is longer than the evaluation context is read as in training, in bfloat16. The report is written
        as it grows: what takes longest comes last.
        """
        self.model.eval()
        settings, context = self.settings, self.settings.evaluation_context
        torch.set_float32_matmul_precision("highest")
        few = self.held_out[: 4 * context].view(-1, context).long()
        report = {
            "run": self._facts_of_run(),
            "shape": dataclasses.asdict(self.shape) | {"parameters": self.shape.parameters},
            "data": self.facts,
            "loss": {
                "train": validation_loss(self.model, self.seen, context),
                "validation": validation_loss(self.model, self.held_out, context),
            },
            "heads": head_scores(
                self.model, few, [*self.facts["sentence_ends"], self.facts["paragraph_end"]]
            ),
        }
        self._write(report)
        with self.autocast():
            report["long"] = losses_by_position(self.model, self.long)
            self.say("by position: " + ", ".join(f"{x['to']}: {x['loss']:.3f}" for x in report["long"]))
            report["repetition"] = [self._repetition(period) for period in settings.periods]
            self._write(report)
            report["needles"] = [self._needles(len(self.long[0])), self._needles(context)]
            self._write(report)
        torch.set_float32_matmul_precision("high")
        report["samples"] = self._samples(few)
        self._write(report)
        with self.autocast():
            stream = torch.cat([self.held_out, self.long.flatten()])[: settings.beyond]
            whole = losses_by_position(self.model, stream[None])
            report["beyond"] = apart(self.model, stream, context, whole)
            self.say("one stream: " + ", ".join(f"{x['to']}: {x['loss']:.3f}" for x in report["beyond"]))
        self._write(report)
        best = {name: max(map(max, scores)) for name, scores in report["heads"].items()}
        self.say(f"strongest heads: {best}")
        return report

    def _write(self, report: dict) -> None:
        (self.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")

    def _repetition(self, period: int) -> dict:
        seen = repetition(self.model, period, 8 if period <= 4000 else 3, self.device)
        self.say(
            f"{period} random tokens: {seen['first']:.2f}, again: {seen['second']:.3f}, "
            f"strongest induction head {max(map(max, seen['induction'])):.2f}"
        )
        return seen

    def _needles(self, length: int) -> dict:
        hay = self.long[:, :length].repeat(self.settings.needles // len(self.long) + 1, 1)[
            : self.settings.needles
        ]
        found = needles(
            self.model, hay, self.asked, self.settings.depths, self.facts["paragraph_end"],
            self.facts["sentence_ends"],
        )  # fmt: skip
        chances = " ".join(f"{x:.2f}" for x in found["recalled"])
        self.say(f"needles in {length} tokens, recalled by depth: {chances}")
        return found

    def _samples(self, few: Tensor) -> dict:
        # Even samples begin with nothing, odd ones with the opening of a page it was not trained on.
        prompts = torch.zeros(3, 1, dtype=torch.long, device=self.device)
        pages = torch.cat([torch.zeros_like(few[:3, :1]), few[:3, :24]], 1)
        return {
            "from_nothing": continuations(self.model, prompts, self.settings.sample_tokens).tolist(),
            "from_a_page": continuations(self.model, pages, self.settings.sample_tokens).tolist(),
        }

    def _facts_of_run(self) -> dict:
        return {
            "steps": self.step,
            "tokens": self.read,
            "epochs": round(self.read / len(self.stream), 1),
            "seconds": round(self.trained, 1),
            "machine": self._machine(),
            "command": " ".join(["python -m training.train", *sys.argv[1:]]),
            "segments": [SHORTEST, max(self.settings.contexts) // 2],
            "parts": PARTS,
            "settings": dataclasses.asdict(self.settings),
        }

    def _beginnings(self, stream: Tensor) -> Tensor:
        """The beginnings of whole books, each as long as the longest context, that of the longest books."""
        ends = (stream == 0).nonzero().flatten().tolist()
        books = [stream[start:stop] for start, stop in zip([0, *(e + 1 for e in ends)], ends, strict=False)]
        length = min(max(self.settings.contexts), max(map(len, books)))
        return torch.stack([book[:length] for book in books if len(book) >= length]).long()

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

    def _optimizers(self) -> list[torch.optim.Optimizer]:
        """Muon for the matrices of layers, AdamW for the embedding and the gains; `peak` is their rate."""
        settings, layers = self.settings, [*self.model.model.layers.parameters()]
        matrices = [p for p in layers if p.ndim > 1]
        gains = [p for p in self.model.parameters() if p.ndim == 1]
        others = [
            {"params": [self.model.model.embed_tokens.weight], "weight_decay": settings.weight_decay},
            {"params": gains, "weight_decay": 0.0},
        ]
        muon = Muon(matrices, lr=settings.matrix_rate, weight_decay=settings.weight_decay)
        adam = torch.optim.AdamW(
            others, lr=settings.learning_rate, betas=(0.9, 0.95), fused=self.device.type == "cuda"
        )
        for optimizer in (muon, adam):
            for group in optimizer.param_groups:
                group["peak"] = group["lr"]
        return [muon, adam]

    def _machine(self) -> str:
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        return f"{name}, torch {torch.__version__}, regard {regard.__version__}"


if __name__ == "__main__":
    main()
