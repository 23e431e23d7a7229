"""The Ray engine on a cluster of two nodes, with actors killed on the way: the same bytes."""

from __future__ import annotations

import os
import signal
import warnings

import pytest

from corpora import digests
from regard import corpus
from regard.corpus.engines.ray import _Actor

ray = pytest.importorskip("ray", reason="NO RAY HERE, SO THE RAY ENGINE IS NOT TESTED: pip install ray")
SMALL = corpus.Settings(shard=4, batch=100)
KILLS = 2


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        # Ray's fault: it leaves files and sockets open, and uses what Python deprecates.
        warnings.simplefilter("ignore")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        paths = os.pathsep.join(filter(None, __import__("sys").path))
        quiet = {"env_vars": {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}}
        ray.init(address=made.address, log_to_driver=False, runtime_env=quiet)
        yield made
        ray.shutdown()
        made.shutdown()


class _Mortal(_Actor):
    """An actor that kills itself in the midst of its second shard, until enough have died."""

    def read(self, shard: int) -> int:
        marks = os.path.dirname(self.job["output"])
        dead = len([name for name in os.listdir(marks) if name.startswith("dead-")])
        if shard and dead < KILLS:
            with open(os.path.join(marks, f"dead-{dead}"), "w"):
                os.kill(os.getpid(), signal.SIGKILL)
        return super().read(shard)


@pytest.mark.filterwarnings("ignore")
def test_actors_on_two_nodes_that_die_leave_the_bytes_of_one_process(
    cluster, tiny_model, stories, tmp_path, monkeypatch
):
    undisturbed, folder = tmp_path / "one.corpus", tmp_path / "ray.corpus"
    corpus.run(tiny_model, stories, undisturbed, settings=SMALL)
    monkeypatch.setattr("regard.corpus.engines.ray._Actor", _Mortal)
    made = corpus.run(tiny_model, stories, folder, engine="ray", workers=2, settings=SMALL)
    assert len(ray.nodes()) == 2
    assert len(list(tmp_path.glob("dead-*"))) == KILLS
    assert made.documents == 23
    assert digests(folder) == digests(undisturbed)
