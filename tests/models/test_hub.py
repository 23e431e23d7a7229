"""A model on the hub that cannot be asked: an answer in seconds, and the cache where it has the model."""

from __future__ import annotations

import threading

import pytest
from huggingface_hub import constants

from regard.errors import ModelError
from regard.models import hub, load_model


class Session:
    """The client of the hub's library, answering HEAD as it is told to."""

    def __init__(self, answer) -> None:
        self.answer, self.asked = answer, []

    def head(self, address, timeout):
        self.asked.append(address)
        return self.answer()


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """Put a client in the place of the hub's, and an empty folder in the place of its cache."""

    def use(answer):
        session = Session(answer)
        monkeypatch.setattr("huggingface_hub.get_session", lambda: session)
        return session

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return use


def unknown_host():
    raise OSError("Name or service not known.\nMore lines.")


def test_a_hub_that_cannot_be_reached_is_asked_once_and_named(ask, monkeypatch):
    import transformers

    monkeypatch.setattr(
        transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("tried again")
    )
    session = ask(unknown_host)
    message = (
        r"'some/model' is neither a folder here nor in the local cache of the Hugging Face hub, and "
        rf"{constants.ENDPOINT} gives no answer \(Name or service not known\). Check the spelling and the "
        r"network; a folder or a .gguf file needs no network"
    )
    with pytest.raises(ModelError, match=message):
        load_model("some/model")
    assert session.asked == [f"{constants.ENDPOINT}/api/models/some/model"]


def test_a_hub_that_is_silent_is_not_waited_for(ask, monkeypatch):
    monkeypatch.setattr(hub, "WAIT", 0.05)
    over = threading.Event()
    ask(lambda: over.wait(300))
    try:
        with pytest.raises(ModelError, match=r"gives no answer \(nothing within 0.05 s\)"):
            hub.only_cached("some/model")
    finally:
        over.set()


def test_a_name_that_the_cache_cannot_have_is_refused_alike(ask):
    ask(unknown_host)
    with pytest.raises(ModelError, match="'no name!' is neither a folder here nor in the local cache"):
        hub.only_cached("no name!")


def test_a_cached_model_is_read_from_the_cache_while_the_hub_is_away(ask, tmp_path):
    snapshot = tmp_path / "models--some--model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (tmp_path / "models--some--model" / "refs").mkdir()
    (tmp_path / "models--some--model" / "refs" / "main").write_text("0123")
    ask(unknown_host)
    assert hub.only_cached("some/model")
    with pytest.raises(ModelError, match="gives no answer"):
        hub.only_cached("some/model", "model.gguf")


@pytest.mark.parametrize("offline", [True, False])
def test_a_hub_that_answers_or_must_not_be_asked_is_left_to_transformers(ask, monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    session = ask(lambda: "404")
    assert not hub.only_cached("some/model")
    assert len(session.asked) == (not offline)
