"""Requests made at random from the server's own description of itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.viewer import Settings, create_app
from regard.viewer.shelf import Shelf

__all__ = ["OPERATIONS", "answers_well", "described", "without_models"]

METHODS = ("get", "post", "delete")
OPERATIONS = [
    (path, method)
    for path, said in create_app().openapi()["paths"].items()
    for method in METHODS
    if method in said and not path.endswith("/events")
]


def without_models(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let no request load a model, which takes seconds."""

    def busy(self: Shelf, name: str) -> None:
        raise ModelError("no model is loaded for requests made at random.")

    replace(Shelf, "load", busy)


def described(recording: Path, cache: Path) -> tuple[Any, str]:
    """The schema as schemathesis reads it from the server, and the id of a recording."""
    import schemathesis

    app = create_app(Settings((recording,), cache=cache))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers={"Host": "127.0.0.1"}), name


def answers_well(operations: Any, name: str, path: str, method: str, examples: int) -> Callable[[], None]:
    """A test that sends so many requests; each is answered as the description says."""
    real = {"recording": name, "role": "decoder", "layer": 1, "head": 2}

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operations[path][method].as_strategy(), known=st.integers(0, 4))
    def check(case: Any, known: int) -> None:
        # Mostly a recording that is there, so that the numbers are what is wrong.
        for part in list(real)[:known]:
            if part in case.path_parameters:
                case.path_parameters[part] = real[part]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = case.call(headers={"Host": "127.0.0.1"})
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert str(answer.status_code) in case.operation.responses.status_codes or answer.status_code == 405
        if answer.status_code >= 400:
            assert answer.json()["error"].strip()

    return check
