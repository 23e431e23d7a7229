"""How long, how fast and how regularised a training run is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """One training run; the defaults made the bundled model.

    The learning rate follows the clock: up over `warmup` steps, level, then down to zero over the last
    `decay` of `minutes`, so a run that must end at a given time ends annealed. `steps`, if given,
    also ends it. `periods` are the distances at which repetition is measured when it is over.
    """

    minutes: float = 8.2
    steps: int | None = None
    batch: int = 48
    repeated: int = 5
    context: int = 2048
    learning_rate: float = 2e-3
    warmup: int = 200
    decay: float = 0.5
    weight_decay: float = 0.1
    dropout: float = 0.05
    evaluate_every: float = 20.0
    evaluation_rows: int | None = None
    sample_tokens: int = 200
    periods: tuple[int, ...] = (64, 256, 1000)
    seed: int = 0
    compile: bool = True

    @classmethod
    def smoke(cls) -> Settings:
        """A run that proves the program works, on a CPU, in under a minute."""
        return cls(
            minutes=5.0, steps=20, batch=4, repeated=2, context=128, warmup=5,
            evaluate_every=5.0, evaluation_rows=4, sample_tokens=10, periods=(16, 64), compile=False,
        )  # fmt: skip

    def rate(self, step: int, elapsed: float) -> float:
        """The learning rate of a step, `elapsed` of the time being spent (0 to 1).

        >>> s = Settings(learning_rate=1.0, warmup=10, decay=0.5)
        >>> s.rate(4, 0.0), s.rate(100, 0.4), s.rate(100, 0.75), s.rate(100, 1.0)
        (0.5, 1.0, 0.5, 0.0)
        """
        if self.steps is not None:
            elapsed = max(elapsed, step / self.steps)
        up = min(1.0, (step + 1) / self.warmup)
        down = min(1.0, max(0.0, (1.0 - elapsed) / self.decay))
        return self.learning_rate * min(up, down)
