"""The site of the documentation builds without a warning, and loads nothing from elsewhere."""

from __future__ import annotations

import doctest
import os
import re
import sys

import pytest
from filelock import FileLock

from docs.pages import DOCS, ROOT
from processes import python

pytest.importorskip("mkdocs", reason="the docs extra is not installed")
sys.path.insert(0, str(ROOT))
from building import docstrings, llms, site


@pytest.fixture(scope="module")
def built(tmp_path_factory, request):
    """The site, built as `make docs` builds it; the hook checks names and addresses at the end."""
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent  # what all workers of one run have in common: they build it once
    with FileLock(shared / "site.lock"):
        if not (shared / "site" / "index.html").exists():
            build(shared / "site")
    return shared / "site"


def build(folder):
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = python("-m", "mkdocs", "build", "--strict", "--site-dir", folder, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.long
def test_every_page_is_on_the_site(built):
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert [str(page) for page in pages if not (built / page).is_file()] == []


@pytest.mark.long
def test_every_public_name_has_an_entry_in_the_reference(built):
    for package in site.packages():
        page = (built / "reference" / f"{package}.html").read_text(encoding="utf-8")
        assert [n for n, home in site.homes_of(package).items() if f'id="{home}.{n}"' not in page] == []
    assert 'href="maps.html#regard.maps.observe"' in (built / "reference" / "index.html").read_text("utf-8")


@pytest.mark.long
def test_links_out_of_the_docs_lead_to_the_line_of_the_name(built):
    page = (built / "coverage.html").read_text(encoding="utf-8")
    line = site.line_of("src/regard/engine/attention.py", "attention")
    address = f"code/src/regard/engine/attention.py.html#__codelineno-0-{line}"
    assert f'href="{address}"' in page
    code = (built / "code/src/regard/engine/attention.py.html").read_text(encoding="utf-8")
    assert f'id="__codelineno-0-{line}"' in code


@pytest.mark.long
def test_doctests_are_code_and_not_quotations(built):
    page = (built / "reference" / "masks.html").read_text(encoding="utf-8")
    assert "<blockquote" not in page


@pytest.mark.long
def test_agents_find_every_page_in_markdown(built):
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (built / "llms.txt").read_text("utf-8"), re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert pages <= set(listed)
    assert [address for address in listed if not (built / address).is_file()] == []
    assert "`observe`: `attention` together with exact statistics" in (built / "reference/maps.md").read_text(
        "utf-8"
    )
    assert "data-line" not in (built / "tour.md").read_text("utf-8")


def test_llms_txt_has_a_line_for_each_page():
    pages = {"a.md": "# One\n\nIt says **this**. And that.", "b/c.md": "# Two\n\n| no | text |"}
    assert llms.llms_txt(pages, {}).splitlines()[6:8] == ["- [One](a.md): It says this.", "- [Two](b/c.md)"]


def test_a_copied_page_leads_to_the_sites_page_of_code():
    page = 'See [it](../code/src/regard/x.py.md){ data-line="3" } and [that](b.md).'
    assert llms.copied(page) == "See [it](../code/src/regard/x.py.html) and [that](b.md)."


@pytest.mark.parametrize("module", [docstrings, llms, site], ids=lambda module: module.__name__)
def test_the_examples_in_the_hooks_run(module):
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_a_docstring_keeps_its_words_around_its_doctests():
    text = "Adds.\n\n>>> 1 + 1\n2\n\nMore.\n\n>>> 2\n2"
    assert docstrings.fenced(text) == (
        "Adds.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore.\n\n```pycon\n>>> 2\n2\n```"
    )


@pytest.mark.parametrize(
    ("text", "suffix", "found"),
    [
        ('<script src="https://cdn.org/a.js"></script>', ".html", ["https://cdn.org/a.js"]),
        ('<link rel="stylesheet" href="//fonts.org/a.css">', ".html", ["//fonts.org/a.css"]),
        ('<img alt="x" src=https://x.org/a.png>', ".html", ["https://x.org/a.png"]),
        ('<a href="https://x.org">x</a><script src="a.js"></script>', ".html", []),
        ("@font-face{src:url(https://fonts.org/a.woff2)}", ".css", ["https://fonts.org/a.woff2"]),
        ("a{background:url(a.svg)}", ".css", []),
    ],
)
def test_what_is_loaded_from_elsewhere_is_seen(text, suffix, found):
    assert site.loaded_from_elsewhere(text, suffix) == found
