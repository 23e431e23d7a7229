"""The widget without a browser: its questions and answers, its traits, and the picture in its place."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import threading
from types import SimpleNamespace

import pytest
import torch

import regard
from loops import finished
from regard.errors import MapError, RecordingError, RegardError
from regard.maps import AttentionMap
from regard.models import Recording
from regard.models.identity import ModelIdentity
from regard.viewer import show, widget
from regard.viewer.settings import STATIC
from viewer.samples import TOKENS, layer, odd, recording

pytest.importorskip("anywidget", reason="NO ANYWIDGET: THE WIDGET IS NOT TESTED.")

PNG = b"\x89PNG"
HEAD = "stacks/decoder/layers/1/heads/3"


@pytest.fixture(scope="module", autouse=True)
def built():
    if not (STATIC / "widget.js").is_file():
        pytest.fail("The widget is not built: run `make frontend`.")


@pytest.fixture(autouse=True)
def no_loop_runs():
    """Tests in a browser, where they share this process, leave their event loop running on its thread."""
    running = asyncio.events._get_running_loop()
    asyncio.events._set_running_loop(None)
    yield
    asyncio.events._set_running_loop(running)


class Page:
    """Stands for the page: asks the widget, and keeps what it says."""

    def __init__(self, shown, monkeypatch):
        self.shown, self.heard = shown, []
        monkeypatch.setattr(
            shown, "send", lambda content, buffers=None: self.heard.append((content, buffers))
        )
        self.base = f"/api/recordings/{self.ask('/api/recordings')['default']}"

    def tell(self, **content):
        self.shown._handle_custom_msg(content, [])

    def answer(self, path, **more):
        self.tell(id="7", path=path, **more)
        (said,) = self.heard
        self.heard.clear()
        return said

    def ask(self, path, **more):
        content, buffers = self.answer(path, **more)
        assert (content["id"], content["status"], buffers) == ("7", 200, [])
        return content["result"]

    def grid(self, path):
        content, (buffer,) = self.answer(path)
        rows, cols = content["result"]["rows"], content["result"]["cols"]
        return torch.frombuffer(bytearray(buffer), dtype=torch.float32).view(rows, cols)


@pytest.fixture(scope="module")
def seen():
    return odd()


@pytest.fixture
def page(seen, monkeypatch):
    shown = show(seen)
    yield Page(shown, monkeypatch)
    shown.close()


def head_map(queries=65, keys=65, **options):
    made = torch.Generator().manual_seed(5)
    q = torch.randn(2, 4, queries, 8, generator=made)
    k = torch.randn(2, 2, keys, 8, generator=made)
    return AttentionMap.of(q, k, **options)


def test_an_exact_tile_arrives_as_the_weights_of_the_map(page, seen):
    tile = page.grid(f"{page.base}/{HEAD}/tile?level=0&row=2&col=2&how=mean")
    torch.testing.assert_close(tile, seen.maps[1][0, 3, 512:701, 512:701])


def test_a_pooled_tile_arrives_as_the_largest_weights_of_its_blocks(page, seen):
    tile = page.grid(f"{page.base}/{HEAD}/tile?level=1&row=0&col=0&how=max")
    dense = seen.maps[1][0, 3, :512, :512].unflatten(1, (-1, 2)).unflatten(0, (-1, 2))
    torch.testing.assert_close(tile, dense.amax((1, 3)))


def test_a_cell_is_read_as_python_reads_it(page, seen):
    cell = page.ask(f"{page.base}/{HEAD}/cell?query=700&key=650")
    row = seen.maps[1][0, 3, 700]
    assert cell["weight"] == pytest.approx(float(row[650]), rel=1e-5)
    assert (cell["rank"], cell["distance"]) == (1 + int((row > row[650]).sum()), 50)


@pytest.mark.parametrize(
    "path", ["tokens", f"{HEAD}/row?query=65&k=3", f"{HEAD}/region?q0=1&q1=64&k0=0&k1=63"]
)
def test_the_widget_says_what_the_server_says(page, client, base, path):
    assert page.ask(f"{page.base}/{path}") == client.get(f"{base}/{path}").json()


def test_every_head_of_a_layer_answers_at_once(page, seen):
    rows = page.grid(f"{page.base}/stacks/decoder/layers/0/weights?query=63")
    torch.testing.assert_close(rows, seen.maps[0][0, :, 63])


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        (f"{HEAD}/cell?query=701&key=0", 404, "query 701 is out of range: the map has 701 (query 0 to 700)."),
        (f"{HEAD}/cell?query=1", 422, "key: Field required."),
        ("stacks/vision/layers/0/heads/0/row?query=1", 404, "the recording has no 'vision'; its stacks are:"),
    ],
)
def test_what_cannot_be_answered_is_answered_with_a_sentence(page, path, status, sentence):
    content, buffers = page.answer(f"{page.base}/{path}")
    assert (content["status"], buffers) == (status, [])
    assert content["result"]["error"].startswith(sentence)


def test_in_a_kernel_the_work_is_done_beside_its_thread_and_the_answer_leaves_from_it(seen, monkeypatch):
    shown = show(seen)
    worked, said, kernels = set(), [], []
    real = shown._app

    async def app(*arguments):
        worked.add(threading.current_thread())
        await real(*arguments)

    monkeypatch.setattr(shown, "_app", app)

    async def kernel():
        kernels.append(threading.current_thread())
        ready = asyncio.Event()

        def send(content, buffers=None):
            said.append((content, threading.current_thread()))
            ready.set()

        monkeypatch.setattr(shown, "send", send)
        shown._handle_custom_msg({"id": "a", "path": "/api/worked"}, [])
        await ready.wait()

    finished(kernel())
    shown.close()
    ((content, thread),) = said
    assert content == {"id": "a", "status": 200, "result": {"names": ["cat", "three"]}}
    assert [thread] == kernels
    assert thread not in worked


def test_a_question_taken_back_is_not_answered(seen, monkeypatch):
    shown = show(seen)
    said, gate = [], threading.Event()
    real = shown._app

    async def slow(*arguments):
        gate.wait()
        await real(*arguments)

    monkeypatch.setattr(shown, "_app", slow)
    monkeypatch.setattr(shown, "send", lambda content, buffers=None: said.append(content["id"]))

    async def kernel():
        for name in "abcd":
            shown._handle_custom_msg({"id": name, "path": "/api/worked"}, [])
        # a is under way, d has not begun: neither is wanted any more.
        shown._handle_custom_msg({"cancel": "a"}, [])
        shown._handle_custom_msg({"cancel": "d"}, [])
        gate.set()
        while len(said) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)

    finished(kernel())
    shown.close()
    assert sorted(said) == ["b", "c"]


def test_the_view_begins_where_it_is_told_to(seen):
    told = {"view": "text", "role": "cross", "head": 1, "query": 62, "key": 300, "x": 1.5, "how": "mean"}
    shown = show(seen, height=300, **told)
    assert {name: getattr(shown, name) for name in told} == told
    assert (shown.layer, shown.height) == (0, 300)
    assert {*told, "layer", "height", "views"} <= set(shown.keys)  # known to the page as well
    shown.close()


def test_a_place_that_was_not_recorded_is_refused_later_on_too(page):
    with pytest.raises(
        RecordingError, match=r"^layer 9 of the decoder was not recorded; recorded are: 0, 1, 2\.$"
    ):
        page.shown.layer = 9
    with pytest.raises(MapError, match=r"^head 4 is out of range: the layer has 4 \(head 0 to 3\)\.$"):
        page.shown.head = 4
    page.shown.set_state({"role": "cross", "layer": 0, "head": 3})  # as the page moves, all at once
    assert (page.shown.role, page.shown.layer, page.shown.head) == ("cross", 0, 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lair": 1}, r"^show has no option 'lair'; it has role, layer, head, view, .* tokens and height\.$"),
        ({"view": "atlas"}, r"^view is 'atlas'; wanted one of 'map', 'text'\.$"),
        ({"role": "audio"}, r"^the recording has no audio; its stacks are: decoder, cross\.$"),
        ({"layer": 3}, r"^layer 3 of the decoder was not recorded; recorded are: 0, 1, 2\.$"),
        ({"head": -1}, r"^head -1 is out of range: the layer has 4 \(head 0 to 3\)\.$"),
        ({"tokens": ["a"]}, r"^a recording knows its tokens: leave out tokens="),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(seen, options, sentence):
    with pytest.raises(RegardError, match=sentence):
        show(seen, **options)


def test_only_recordings_and_maps_are_shown():
    with pytest.raises(RegardError, match=r"^show got a Tensor; it shows a Recording or an AttentionMap\.$"):
        show(torch.zeros(3, 3))
    with pytest.raises(RecordingError, match=r"^nothing was recorded yet"):
        show(Recording(ModelIdentity("none", "None", "0")))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (63, 65), (65, 63)])
def test_a_map_by_itself_is_shown_as_the_map_it_is(monkeypatch, queries, keys):
    whole = head_map(queries, keys, softcap=2.0)
    shown = whole.show(head=2)
    page = Page(shown, monkeypatch)
    about = page.ask(page.base)
    assert (shown.views, about["stacks"][0]["queries"], about["stacks"][0]["keys"]) == (
        ["map"],
        queries,
        keys,
    )
    tile = page.grid(f"{page.base}/stacks/decoder/layers/0/heads/2/tile?level=0&row=0&col=0")
    torch.testing.assert_close(tile, whole[0, 2])
    assert page.ask(f"{page.base}/tokens")["pieces"] == [str(i) for i in range(keys)]
    shown.close()


def test_a_map_keeps_its_own_score_and_mask(monkeypatch):
    whole = head_map(mask=regard.Causal(), score_mod=lambda s, b, h, q, k: s - 0.1 * h * (q - k))
    shown = whole.show()
    page = Page(shown, monkeypatch)
    assert page.ask(page.base)["stacks"][0]["causal"]
    tile = page.grid(f"{page.base}/stacks/decoder/layers/0/heads/3/tile?level=0&row=0&col=0")
    torch.testing.assert_close(tile, whole[0, 3])
    shown.close()


def test_a_map_with_tokens_has_a_text_too(monkeypatch):
    shown = head_map(2, 3).show(tokens=["a", "<b>", "c"])
    assert shown.views == ["map", "text"]
    assert Page(shown, monkeypatch).ask("/api/recordings")["recordings"][0]["tokens"] == 2
    shown.close()
    with pytest.raises(MapError, match=r"^2 tokens were given and the map has 3 keys; name every key\.$"):
        head_map(3, 3).show(tokens=["a", "b"])
    with pytest.raises(RegardError, match=r"^view is 'text'; wanted one of 'map'\.$"):
        head_map(3, 3).show(view="text")


def test_without_anywidget_a_picture_says_how_to_get_the_widget(seen, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    shown = seen.show(layer=1, head=2)
    said = shown._repr_mimebundle_(include=None, exclude=None)
    assert base64.b64decode(said["image/png"]).startswith(PNG)
    assert (
        said["text/plain"]
        == repr(shown)
        == (
            "A still picture of layer 1, head 2. To pan and zoom, install the widget "
            "(pip install 'regard[notebook]') and restart the kernel."
        )
    )


def test_without_a_built_page_a_picture_says_how_to_build_it(seen, monkeypatch, tmp_path):
    monkeypatch.setattr(widget, "STATIC", tmp_path)
    assert "build the page first (make frontend)" in repr(show(seen))


def test_a_saved_notebook_shows_a_picture_where_widgets_do_not_run():
    shown = show(recording(layer(0, 63, 63, regard.Causal())))
    data, _ = shown._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.model_id
    assert base64.b64decode(data["image/png"]).startswith(PNG)
    json.dumps(data)
    shown.close()


def test_a_kernel_shows_the_picture_as_an_output_of_its_own(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: outputs.append(data))
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: SimpleNamespace(kernel=None))
    shown = show(recording(layer(0, 63, 63, regard.Causal())))
    shown._ipython_display_()
    live, still = outputs
    assert "image/png" not in live
    assert base64.b64decode(still["image/png"]).startswith(PNG)
    assert f'data-regard-still="{shown.still}"' in still["text/html"]
    # A terminal shows neither, and gets the sentence alone.
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: None)
    outputs.clear()
    shown._ipython_display_()
    assert [list(output) for output in outputs] == [list(live)]
    shown.close()


def test_tokens_that_look_like_html_travel_as_text(page):
    assert page.ask(f"{page.base}/tokens")["pieces"][: len(TOKENS)] == TOKENS


def test_closing_the_widget_ends_its_threads_and_removes_what_it_stored(seen):
    shown = show(seen)
    session = shown._app.state.session
    scratch = session.scratch
    assert scratch.is_dir()
    shown.close()
    assert not scratch.exists()
    with pytest.raises(RuntimeError, match="shutdown"):
        shown._workers.submit(print)


def test_an_application_that_fails_without_an_answer_is_an_error_on_the_page(page):
    async def broken(scope, receive, send):
        raise RuntimeError("lost")

    page.shown._app = broken
    content, buffers = page.answer("/api/recordings")
    assert (content["status"], buffers) == (500, [])
    assert content["result"] == {"error": "the application failed without an answer"}
