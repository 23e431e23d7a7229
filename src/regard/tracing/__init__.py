"""Every step of a small attention computation: named, explained, printable."""

from regard.tracing.examples import EXAMPLES, example
from regard.tracing.result import Trace
from regard.tracing.step import Step
from regard.tracing.trace import trace

__all__ = ["EXAMPLES", "Step", "Trace", "example", "trace"]
