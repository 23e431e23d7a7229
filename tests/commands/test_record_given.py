"""`regard record` with a chat or an image in place of a text."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

from models.sensing import TEMPLATE, TEXT, VISION, picture, tokenizer
from regard.models import Passage, Recording


@pytest.fixture
def chatty(tmp_path):
    """A folder with a small model that was made for conversations."""
    said = tokenizer()
    said.chat_template = TEMPLATE
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)).save_pretrained(tmp_path / "model")
    said.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_chat_is_read_from_a_file(run, chatty, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": "what is in the picture ?"}]))
    status, _, err = run("record", str(chatty), "--chat", "chat.json", "-o", "x.regard")
    assert status == 0, err
    assert Recording.open("x.regard").passages == [Passage("user", 1, 7)]
    status, _, err = run("record", str(chatty), "a cat", "--chat", "chat.json", "-o", "y.regard")
    assert (status, "leave out one of them" in err) == (2, True)


def test_an_image_is_read_with_the_models_processor(run, tmp_path):
    sizes = {**VISION, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
    transformers.ViTModel(transformers.ViTConfig(**sizes)).save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    picture().save(tmp_path / "cat.png")
    status, out, err = run("record", str(tmp_path / "vit"), "--image", "cat.png", "-o", "x.regard", "--json")
    assert status == 0, err
    assert json.loads(out)["tokens"] == 17
    assert Recording.open("x.regard").tokens_of("encoder")[0][1].text == "patch 0,0"
    status, _, err = run("record", str(tmp_path / "vit"), "--image", "no.png", "-o", "y.regard")
    assert (status, "no.png cannot be read as an image" in err) == (2, True)
