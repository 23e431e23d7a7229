"""The path that judges printed numbers."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from regard.checking import check
from regard.viewer import create_app


@pytest.fixture(scope="module")
def client():
    return TestClient(create_app(), base_url="http://127.0.0.1")


def test_the_answer_is_what_the_function_returns(client):
    text = "softmax(1, 2, 3) = 0.09, 0.26, 0.67"
    answer = client.post("/api/check", json={"text": text})
    assert answer.status_code == 200
    assert answer.json() == check(text).to_dict()


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("no numbers", 400, "the text holds no number; paste the numbers of an example with their names."),
        ("scores: 1 2\nscores: 3 4", 400, "scores is given twice; "),
        ("", 422, "text: String should have at least 1 character."),
    ],
)
def test_what_cannot_be_read_is_one_sentence(client, text, status, said):
    answer = client.post("/api/check", json={"text": text})
    assert answer.status_code == status
    assert answer.json()["error"].startswith(said)
