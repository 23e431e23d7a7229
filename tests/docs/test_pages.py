"""Every block of code on every page of the documentation runs."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import transformers

import regard
import regard.models
from building.readme import program
from docs.pages import DOCS, ROOT, blocks, commands
from regard.cli import app

# Pages whose code a test of their own runs, which also looks at what it gives.
ELSEWHERE = {
    "atlas.md": "tests/atlas/test_page.py",
    "causal.md": "tests/atlas/test_causal_page.py",
    "cost.md": "tests/cost/test_page.py",
    "nn.md": "tests/nn/test_page.py",
    "../README.md": "tests/test_project.py",
}
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text("utf-8") for path in sorted(DOCS.rglob("*.md"))}
WITH_CODE = [name for name, text in PAGES.items() if blocks(text, "python") and name not in ELSEWHERE]
# What these say is what the README or the help of a command says, and tests/commands runs that.
SAID_ELSEWHERE = ("howto/doctor.md", "report.md")
WITH_COMMANDS = [name for name, text in PAGES.items() if commands(text) and name not in SAID_ELSEWHERE]
ATTENTION = """
from torch.nn import functional as F

def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""


def save_encoder_decoder(folder: Path, tokenizer: Path) -> None:
    """A small T5 of random weights that reads with the tokenizer of another folder."""
    reader = transformers.AutoTokenizer.from_pretrained(tokenizer)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=len(reader), decoder_start_token_id=0, **sizes)
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    reader.save_pretrained(folder)


@pytest.mark.parametrize(
    "name",
    # How-to pages read the bundled model, one after the other.
    [pytest.param(name, marks=pytest.mark.long) if name.startswith("howto/") else name for name in WITH_CODE],
)
def test_the_code_on_the_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(program(PAGES[name]), f"docs/{name}", "exec"), {"__name__": "page"})


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_on_the_page_run(name, run, tmp_path, monkeypatch):
    # Where a processor has no bfloat16, a model saved with it takes a tenth of a second for every token.
    beginning = regard.models.sample_text()[:80]
    monkeypatch.setattr(regard.models, "sample_text", lambda: beginning)
    (tmp_path / "story.txt").write_text(beginning, encoding="utf-8")
    (tmp_path / "my_attention.py").write_text(ATTENTION, encoding="utf-8")
    (tmp_path / "a").mkdir()
    bundled = Path(regard.models.__file__).parent / "data"
    (tmp_path / "a" / "folder").symlink_to(bundled)
    if "a/t5/folder" in PAGES[name]:
        save_encoder_decoder(tmp_path / "a" / "t5" / "folder", bundled)
        (tmp_path / "question.txt").write_text("Where was it found?", encoding="utf-8")
    monkeypatch.setattr(import_module("regard.atlas.needle"), "STORY", 100)
    for line in commands(PAGES[name]):
        # A needle in the book, but over fewer of its tokens: 8,000 take half a minute.
        status, _, err = run(*shlex.split(line.replace("--length 8000", "--length 200")))
        assert status == 0, f"regard {line}: {err}"


@pytest.mark.parametrize("name", SAID_ELSEWHERE)
def test_commands_that_are_not_run_here_are_those_of_the_readme_or_the_help(name):
    said = [f"Example: regard {line}" for line in commands((ROOT / "README.md").read_text("utf-8"))]
    said += [command.epilog for command in app.registered_commands]
    # Short and long names of an option mean the same.
    said = [line.replace(" --output ", " -o ") for line in said]
    assert [line for line in commands(PAGES[name]) if f"Example: regard {line}" not in said] == []


def test_every_page_with_code_is_run_by_a_test():
    assert {"index.md", "tutorial.md", "howto/watch.md"} <= set(WITH_CODE)
    for name, test in ELSEWHERE.items():
        assert Path(name).name in (ROOT / test).read_text(encoding="utf-8"), test


def test_the_mask_on_the_tutorial_is_drawn_as_it_is():
    drawn = (regard.Causal() & regard.Window(3)).draw(6)
    assert f"```text\n{drawn}\n```" in PAGES["tutorial.md"]


def test_a_block_that_fails_would_be_seen():
    text = "```python\nx = 1\n```\nwords\n```python\nraise ValueError(x)\n```\n"
    with pytest.raises(ValueError, match="1"):
        exec(program(text), {})
    assert program(text).splitlines()[5] == "raise ValueError(x)"


def test_every_block_of_code_says_what_it_is():
    unmarked = {name for name, text in PAGES.items() if len(re.findall(r"^```\w*$", text, re.MULTILINE)) % 2}
    assert unmarked == set()
    opened = {
        (name, kind) for name, text in PAGES.items() for kind in re.findall(r"^```(\w+)$", text, re.MULTILINE)
    }
    assert {kind for _, kind in opened} <= {"python", "bash", "console", "json", "sh", "text"}


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def anchor(heading: str) -> str:
    """The anchor that a heading gets: small letters, hyphens, nothing else."""
    plain = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", plain)


@pytest.mark.parametrize("name", PAGES)
def test_every_link_on_the_page_leads_somewhere(name):
    missing = []
    for target in LINK.findall(re.sub(r"^```.*?^```", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)):
        path, _, place = target.partition("#")
        # The reference is made when the site is built; its links are checked there.
        if re.match(r"https?://", target) or "reference/" in path:
            continue
        found = (DOCS / name).parent / path if path else DOCS / name
        if not found.exists():
            missing.append(target)
        elif place and found.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            missing += [] if place in map(anchor, headings) else [target]
    assert missing == []
