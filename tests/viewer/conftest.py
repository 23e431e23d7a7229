"""A server in this process over a recording of odd lengths, on disk; and a client that talks to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fastapi.testclient import TestClient

from regard.models import Recording
from regard.viewer import Settings, create_app
from viewer.samples import odd, saved


@pytest.fixture(scope="session")
def odd_path(tmp_path_factory) -> Path:
    return saved(odd(), tmp_path_factory.mktemp("recordings") / "odd.regard")


@pytest.fixture(scope="session")
def odd_recording(odd_path) -> Recording:
    return Recording.open(odd_path)


@pytest.fixture(scope="session")
def client(odd_path, tmp_path_factory):
    settings = Settings((odd_path.parent,), cache=tmp_path_factory.mktemp("cache"))
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture(scope="session")
def base(client) -> str:
    """The path of the recording."""
    return f"/api/recordings/{client.get('/api/recordings').json()['default']}"


def grid(response) -> torch.Tensor:
    """A binary answer as the matrix that it is."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/octet-stream"
    rows, cols = int(response.headers["x-rows"]), int(response.headers["x-cols"])
    return torch.frombuffer(bytearray(response.content), dtype=torch.float32).view(rows, cols)
