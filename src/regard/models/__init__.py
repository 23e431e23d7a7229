"""Recording the attention of transformers models."""

from regard.models.bundled import bundled, sample_book, sample_text
from regard.models.images import PatchGrid, image_map, plot_image, record_image
from regard.models.imported import from_attentions
from regard.models.layer import Layer
from regard.models.loading import LoadedModel, load_model
from regard.models.looking import ImageSink, image_share, image_sinks, patches_seen
from regard.models.opening import load
from regard.models.passages import Passage, load_chat
from regard.models.progress import progress
from regard.models.record import record
from regard.models.recording import Recording
from regard.models.stack import Stack
from regard.models.telemetry import Reading, Telemetry, TrainerCallback
from regard.models.text import chat_text, context_length, encode, load_text
from regard.models.tokens import Token
from regard.models.tracking import (
    Alarm,
    Alarms,
    lightning_callback,
    scalars,
    to_all,
    to_tensorboard,
    to_trackio,
    to_wandb,
)
from regard.models.watch import watch

__all__ = [
    "Alarm",
    "Alarms",
    "ImageSink",
    "Layer",
    "LoadedModel",
    "Passage",
    "PatchGrid",
    "Reading",
    "Recording",
    "Stack",
    "Telemetry",
    "Token",
    "TrainerCallback",
    "bundled",
    "chat_text",
    "context_length",
    "encode",
    "from_attentions",
    "image_map",
    "image_share",
    "image_sinks",
    "lightning_callback",
    "load",
    "load_chat",
    "load_model",
    "load_text",
    "patches_seen",
    "plot_image",
    "progress",
    "record",
    "record_image",
    "sample_book",
    "sample_text",
    "scalars",
    "to_all",
    "to_tensorboard",
    "to_trackio",
    "to_wandb",
    "watch",
]
