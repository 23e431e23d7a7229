"""Requests nobody would send by hand, made from the server's own description of itself."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.viewer import Settings, create_app
from regard.viewer.shelf import Shelf

schemathesis = pytest.importorskip("schemathesis")

METHODS = ("get", "post", "delete")
OPERATIONS = [
    (path, method)
    for path, described in create_app().openapi()["paths"].items()
    for method in METHODS
    if method in described and not path.endswith("/events")
]


@pytest.fixture(scope="module")
def schema(odd_path, tmp_path_factory):
    def busy(self, name):
        raise ModelError("no model is loaded for requests made at random.")

    patch = pytest.MonkeyPatch()
    patch.setattr(Shelf, "load", busy)
    yield described(odd_path, tmp_path_factory.mktemp("cache"))
    patch.undo()


def described(odd_path, cache):
    """The schema as schemathesis reads it from the server, and the id of a recording."""
    app = create_app(Settings((odd_path,), cache=cache))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        name = client.get("/api/recordings").json()["default"]
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers={"Host": "127.0.0.1"}), name


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_no_request_takes_the_server_down(schema, path, method):
    operations, name = schema
    real = {"recording": name, "role": "decoder", "layer": 1, "head": 2}

    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operations[path][method].as_strategy(), known=st.integers(0, 4))
    def check(case, known: int) -> None:
        # Mostly a recording that is there, so that the numbers are what is wrong.
        for part in list(real)[:known]:
            if part in case.path_parameters:
                case.path_parameters[part] = real[part]
        answer = case.call(headers={"Host": "127.0.0.1"})
        assert answer.status_code < 500 or answer.status_code == 503, answer.text
        assert str(answer.status_code) in case.operation.responses.status_codes or answer.status_code == 405
        if answer.status_code >= 400:
            assert answer.json()["error"].strip()

    check()
