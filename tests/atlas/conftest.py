"""The bundled model and what it did with a text, once for all."""

from __future__ import annotations

import warnings

import pytest
import torch

with warnings.catch_warnings():
    # transformers and what it imports warn about themselves.
    warnings.simplefilter("ignore")
    import transformers

from regard.models import Recording, bundled, sample_text, watch

transformers.logging.set_verbosity_error()


@pytest.fixture(scope="session")
def bundled_model():
    return bundled()


@pytest.fixture(scope="session")
def told(bundled_model) -> Recording:
    """The bundled model reading the bundled story."""
    model, tokenizer = bundled_model
    ids = tokenizer(sample_text(), return_tensors="pt")["input_ids"]
    with watch(model, tokenizer=tokenizer, text=sample_text()) as recording, torch.no_grad():
        model(ids, logits_to_keep=1)
    return recording


@pytest.fixture(scope="session")
def repeated(bundled_model) -> Recording:
    """The bundled model reading 65 random tokens twice."""
    ids = torch.randperm(4000, generator=torch.Generator().manual_seed(3))[:65] + 3
    with watch(bundled_model[0]) as recording, torch.no_grad():
        bundled_model[0](ids.repeat(2)[None], logits_to_keep=1)
    return recording
