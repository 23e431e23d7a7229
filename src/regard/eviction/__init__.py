"""Cache eviction: policies that select keys to drop, and measurements of what a model loses."""

from regard.eviction.evaluate import evaluate, evaluate_needle
from regard.eviction.loss import HeadLoss, Loss
from regard.eviction.policies import (
    H2O,
    POLICIES,
    TOVA,
    KeyMaximum,
    KVzip,
    MeanMass,
    Policy,
    RandomKeys,
    Room,
    SinkWindow,
    SnapKV,
    kept_keys,
    policy_named,
)
from regard.eviction.result import Eviction

__all__ = [
    "H2O",
    "POLICIES",
    "TOVA",
    "Eviction",
    "HeadLoss",
    "KVzip",
    "KeyMaximum",
    "Loss",
    "MeanMass",
    "Policy",
    "RandomKeys",
    "Room",
    "SinkWindow",
    "SnapKV",
    "evaluate",
    "evaluate_needle",
    "kept_keys",
    "policy_named",
]
