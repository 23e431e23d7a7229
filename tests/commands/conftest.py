"""A recording to run commands on."""

from __future__ import annotations

import pytest

from regard.models import bundled, record

STORY = "The badger lit the lamp. The heron saw the lamp, and the badger saw the heron. " * 8


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A recording on disk: two layers of the bundled model on a short text."""
    path = tmp_path_factory.mktemp("recordings") / "short.regard"
    record(bundled(), STORY, layers=[5, 6], store=path)
    return path
