"""Engines that read the shards of a corpus: this process, several processes, Ray."""

from regard.corpus.engines.local import in_this_process
from regard.corpus.engines.processes import in_processes
from regard.corpus.engines.ray import on_ray

__all__ = ["in_processes", "in_this_process", "on_ray"]
