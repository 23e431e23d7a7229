"""Readings in the trackers that people have, and alarms about them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from regard.errors import ModelError
from regard.models import (
    Alarms,
    Reading,
    Telemetry,
    TrainerCallback,
    lightning_callback,
    scalars,
    to_all,
    to_tensorboard,
    to_trackio,
    to_wandb,
)


def reading(step: int, peak: float = 4.0, entropy: float = 2.0) -> Reading:
    return Reading(step, torch.tensor([[4.0, peak]]), torch.tensor([[2.0, entropy]]))


class Run:
    """What stands where a run of a tracker does."""

    def __init__(self) -> None:
        self.said: list[dict] = []

    def log(self, values: dict) -> None:
        self.said.append(values)


def test_layers_with_fewer_heads_do_not_spoil_the_numbers():
    found = scalars(
        Reading(3, torch.tensor([[1.0, 5.0], [2.0, torch.nan]]), torch.tensor([[1.0, 3.0], [2.0, torch.nan]]))
    )
    assert found["attention/max_score/max"] == 5
    assert found["attention/entropy/mean"] == 2
    assert found["attention/entropy/layer_01"] == 2
    assert found["attention/max_score/layer_01"] == 2


@pytest.mark.parametrize("to", [to_wandb, to_trackio])
def test_a_run_gets_the_numbers_and_the_step(to):
    run = Run()
    to(run, prefix="attn")(reading(7, peak=9.0))
    assert run.said[0]["attn/max_score/max"] == 9
    assert run.said[0]["attn/step"] == 7


def test_a_run_that_was_not_begun_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=None))
    with pytest.raises(ModelError, match=r"call wandb.init\(\) first"):
        to_wandb()(reading(0))
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ModelError, match="pip install trackio"):
        to_trackio()


def test_tensorboard_holds_scalars_and_histograms(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    to_tensorboard(writer)(reading(5, entropy=0.5))
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("attention/entropy/min")] == [(5, 0.5)]
    assert "attention/entropy" in events.Tags()["histograms"]


def test_several_logs_are_called_in_order():
    said = []
    to_all(lambda _: said.append("a"), lambda _: said.append("b"))(reading(0))
    assert said == ["a", "b"]


def test_an_alarm_rings_once_until_the_head_is_back_in_range():
    rung = []
    alarms = Alarms([reading(0), reading(1, entropy=1.6)], entropy=0.5, act=rung.append)
    for step, entropy in enumerate([0.9, 0.7, 0.6, 1.0, 0.7]):
        alarms(reading(step, entropy=entropy))
    assert [(alarm.step, alarm.layer, alarm.head, alarm.what) for alarm in rung] == [
        (1, 0, 1, "entropy"),
        (4, 0, 1, "entropy"),
    ]
    assert rung[0].limit == pytest.approx(0.8)
    assert alarms.alarms == rung


def test_scores_that_grow_ring_also_where_they_were_negative():
    measured = [Reading(0, torch.tensor([[-3.0]]), torch.tensor([[1.0]]))]
    alarms = Alarms(measured)
    alarms(Reading(1, torch.tensor([[-0.5]]), torch.tensor([[1.0]])))
    assert not alarms.alarms
    alarms(Reading(2, torch.tensor([[0.5]]), torch.tensor([[1.0]])))
    assert [str(alarm) for alarm in alarms.alarms] == [
        "step 2: max score of head 0.0 is 0.5 and rose above 0"
    ]


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(ModelError, match="Alarms got no readings"):
        Alarms([])
    with pytest.raises(ModelError, match="wanted 0 < entropy <= 1 and growth >= 1"):
        Alarms([reading(0)], growth=0.5)


def test_a_plain_loop_and_the_trainers_callback_take_the_same_log(llama, ids):
    run = Run()
    telemetry = Telemetry(llama, every=2, log=to_wandb(run))
    for step in range(3):
        with telemetry.step(step):
            llama(ids)
    callback = TrainerCallback(every=2, log=to_wandb(run))
    state = SimpleNamespace(global_step=0, log_history=[])
    callback.on_step_begin(None, state, None, model=llama)
    llama(ids)
    state.global_step = 1
    callback.on_step_end(None, state, None)
    assert [values["attention/step"] for values in run.said] == [0, 2, 0]


@pytest.mark.filterwarnings("ignore")  # Lightning's own, about itself and its data loaders
def test_lightning_logs_what_was_read(make_llama, ids, tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = make_llama()

        def training_step(self, batch, _):
            return self.inner(batch, labels=batch).loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    callback = lightning_callback(every=2)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = dict.fromkeys(off, False)
    options = {"accelerator": "cpu", "max_steps": 3, "default_root_dir": tmp_path, **quiet}
    trainer = lightning.Trainer(**options, callbacks=[callback])
    loader = torch.utils.data.DataLoader(ids.repeat(3, 1), batch_size=1)
    trainer.fit(Module(), loader)
    assert [reading.step for reading in callback.history] == [0, 2]
    assert "attention/entropy/min" in trainer.logged_metrics


def test_lightning_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(ModelError, match="pip install lightning"):
        lightning_callback()
