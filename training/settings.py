"""How long, how fast and how regularised a training run is, and what it reads when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings", "Stage"]


@dataclass(frozen=True)
class Stage:
    """What a step reads until `until` of the time is spent: as many tokens at each of these contexts."""

    until: float
    contexts: tuple[int, ...]


@dataclass(frozen=True)
class Settings:
    """One training run; the defaults made the bundled model.

    The learning rate follows the clock: up over `warmup` steps, level, then down to zero over the last
    `decay` of `minutes`, so a run that must end at a given time ends annealed. `steps`, if given, also ends
    it. Rates are the peaks, of AdamW and of Muon. `tokens` are those of one backward pass, `repeated` and
    `planted` the shares of its rows that repeat a segment or hide facts. `periods` are the distances at which
    repetition is measured when it is over, `beyond` a length that was never trained.
    """

    minutes: float = 8.2
    steps: int | None = None
    stages: tuple[Stage, ...] = (
        Stage(0.45, (2048,)), Stage(0.65, (16384, 2048)), Stage(1.0, (65536, 16384, 2048)),
    )  # fmt: skip
    tokens: int = 65536
    repeated: float = 0.1
    planted: float = 0.1
    learning_rate: float = 2e-3
    matrix_rate: float = 0.02
    warmup: int = 100
    decay: float = 0.55
    weight_decay: float = 0.1
    dropout: float = 0.1
    evaluate_every: float = 30.0
    evaluation_context: int = 2048
    evaluation_rows: int | None = None
    sample_tokens: int = 200
    periods: tuple[int, ...] = (64, 256, 1000, 4000, 8000, 16000, 30000)
    needles: int = 16
    depths: int = 11
    beyond: int = 262144
    seed: int = 0
    compile: bool = True

    @classmethod
    def smoke(cls) -> Settings:
        """A run that proves the program works, on a CPU, in under a minute."""
        return cls(
            minutes=5.0, steps=20, tokens=512, warmup=5, evaluate_every=5.0, evaluation_context=128,
            stages=(Stage(0.5, (128,)), Stage(1.0, (512, 128))), evaluation_rows=4, sample_tokens=10,
            periods=(16, 64), needles=2, depths=3, beyond=1024, compile=False,
        )  # fmt: skip

    @property
    def contexts(self) -> tuple[int, ...]:
        """Every context that is read, the shortest first."""
        return tuple(sorted({context for stage in self.stages for context in stage.contexts}))

    def spent(self, step: int, elapsed: float) -> float:
        """The share of the run that is over, by its time or its steps, whichever is more."""
        return elapsed if self.steps is None else max(elapsed, step / self.steps)

    def stage(self, spent: float) -> Stage:
        """What is read when so much of the run is over.

        >>> Settings().stage(0.0).contexts, Settings().stage(1.0).contexts
        ((2048,), (65536, 16384, 2048))
        """
        return next((stage for stage in self.stages if spent < stage.until), self.stages[-1])

    def rate(self, step: int, elapsed: float) -> float:
        """The learning rate of a step, `elapsed` of the time being spent, as a share of its peak (0 to 1).

        >>> s = Settings(warmup=10, decay=0.5)
        >>> s.rate(4, 0.0), s.rate(100, 0.4), s.rate(100, 0.75), s.rate(100, 1.0)
        (0.5, 1.0, 0.5, 0.0)
        """
        up = min(1.0, (step + 1) / self.warmup)
        down = min(1.0, max(0.0, (1.0 - self.spent(step, elapsed)) / self.decay))
        return min(up, down)
