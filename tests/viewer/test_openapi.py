"""Random requests, generated from the server's OpenAPI description."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from effort import is_exhaustive
from viewer.random_requests import OPERATIONS, answers_well, described, without_models

pytestmark = pytest.mark.skipif(
    find_spec("schemathesis") is None, reason="no schemathesis: pip install 'regard[test]'"
)


@pytest.fixture(scope="module")
def schema(odd_path, tmp_path_factory):
    patch = pytest.MonkeyPatch()
    without_models(patch.setattr)
    yield described(odd_path, tmp_path_factory.mktemp("cache"))
    patch.undo()


@pytest.mark.share(3)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_no_request_takes_the_server_down(schema, path, method):
    answers_well(*schema, path, method, examples=12 if is_exhaustive() else 6)()
