"""What PyPI is told: links of the README, addresses, licences."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest

import regard
from building import metadata
from building.metadata import FENCE, LINK, absolute, addresses, repository, version

ROOT = Path(__file__).parents[1]
HOME = "https://example.org/someone/regard"
README = (ROOT / "README.md").read_text(encoding="utf-8")
LICENCES = ROOT / "src" / "regard" / "viewer" / "static" / "licenses.md"


def test_the_examples_of_the_module_are_true():
    found = doctest.testmod(metadata)
    assert found.attempted
    assert not found.failed


def test_every_link_of_the_readme_leads_to_the_release():
    page = absolute(README, HOME, "1.0")
    assert not LINK.search("".join(part for part in FENCE.split(page) if not part.startswith("```")))
    moved = re.findall(rf"{HOME}/(raw|blob|tree)/v1\.0/([^)#]+)", page)
    assert len(moved) > 20
    for kind, path in moved:
        assert (ROOT / path).is_dir() == (kind == "tree"), path
        assert (ROOT / path).exists(), path


def test_code_of_the_readme_is_left_alone():
    blocks = re.findall(r"^```.*?^```$", README, re.MULTILINE | re.DOTALL)
    assert blocks
    assert re.findall(r"^```.*?^```$", absolute(README, HOME, "1.0"), re.MULTILINE | re.DOTALL) == blocks


def test_a_build_that_knows_no_repository_promises_nothing():
    assert repository({}) is None
    assert addresses(None, "1.0") == {}
    assert absolute(README, None, "1.0") == README
    assert repository({"REGARD_REPOSITORY": f"{HOME}/"}) == HOME


def test_the_version_is_that_of_the_package():
    assert version() == regard.__version__


def test_the_page_brings_the_licence_of_every_library_in_it():
    if not LICENCES.is_file():
        pytest.skip("the page is not built here")
    words = LICENCES.read_text(encoding="utf-8")
    wanted = set(json.loads((ROOT / "frontend" / "package.json").read_text())["dependencies"]) - {"vite"}
    assert {name for name in wanted if f"\n## {name} - " not in words} == set()
    assert "Permission is hereby granted" in words
