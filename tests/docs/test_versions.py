"""The published site has a folder per version, and a menu that leads to each."""

from __future__ import annotations

import doctest
import json
import re
import sys

import pytest
import yaml

from docs.pages import ROOT

sys.path.insert(0, str(ROOT))
from building import versions


class Publishing:
    """Publishes sites that say which they are."""

    def __init__(self, folder) -> None:
        self.folder, self.published = folder, folder / "published"
        self.published.mkdir()

    def __call__(self, ref: str, text: str) -> None:
        site = self.folder / text
        site.mkdir()
        (site / "index.html").write_text(text)
        versions.add(site, self.published, versions.version_of(ref))

    def at(self, address: str) -> str:
        return (self.published / address).read_text()

    def menu(self):
        return json.loads(self.at("versions.json"))


@pytest.fixture
def publish(tmp_path):
    return Publishing(tmp_path)


def test_before_the_first_release_the_root_leads_to_dev(publish):
    publish("refs/heads/main", "early")
    assert 'url=dev/index.html"' in publish.at("index.html")
    assert publish.menu() == [{"version": "dev", "title": "main", "aliases": []}]


def test_a_release_is_the_latest_and_an_older_ones_repair_is_not(publish):
    publish("refs/heads/main", "dev one")
    publish("refs/tags/v0.9.0", "nine")
    publish("refs/tags/v0.10.0", "ten")
    publish("refs/tags/v0.9.1", "nine repaired")
    publish("refs/heads/main", "dev two")
    assert publish.at("latest/index.html") == publish.at("0.10/index.html") == "ten"
    assert publish.at("0.9/index.html") == "nine repaired"
    assert publish.at("dev/index.html") == "dev two"
    assert [(each["version"], each["aliases"]) for each in publish.menu()] == [
        ("0.10", ["latest"]),
        ("0.9", []),
        ("dev", []),
    ]
    assert 'url=latest/index.html"' in publish.at("index.html")


def test_a_page_that_is_gone_from_a_version_is_gone(publish, tmp_path):
    publish("refs/heads/main", "one")
    (tmp_path / "published" / "dev" / "gone.html").touch()
    publish("refs/heads/main", "two")
    assert not (tmp_path / "published" / "dev" / "gone.html").exists()


def test_the_theme_shows_the_menu_and_the_workflow_publishes_every_push():
    # mkdocs.yml holds tags of its own that a plain reader of YAML does not know.
    assert re.search(r"^  version:\n    provider: mike$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["publish"]["steps"]]
    assert any("building.versions site published" in step for step in steps)
    assert workflow[True]["push"] == {"branches": ["main"], "tags": ["v*"]}  # YAML reads `on` as True


def test_the_examples_run():
    found = doctest.testmod(versions)
    assert found.attempted
    assert not found.failed
