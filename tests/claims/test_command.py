"""`regard claims`, as a user meets it."""

from __future__ import annotations

import json

import pytest

from processes import python
from regard import __version__
from regard.claims import CLAIMS

PLAIN = {
    "id": str,
    "statement": str,
    "how": str,
    "verdict": str,
    "sentence": str,
    "numbers": dict,
    "seconds": float,
}


def test_one_claim_is_measured_and_its_numbers_are_shown(run):
    status, out, err = run("claims", "gqa-saves")
    assert (status, err) == (0, "")
    assert "1,610,612,736" in out
    assert "1 holds; 0 s" in out
    assert "ratio of real tensors" in out


def test_the_program_runs_from_outside_with_nothing_but_json_on_its_output():
    done = python("-m", "regard", "claims", "gqa-saves", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["claims"][0]["verdict"] == "holds"


def test_several_claims_make_a_table(run):
    status, out, _ = run("claims", "scale-64", "row-prints")
    assert status == 0
    assert "1 holds, 1 misprint" in out
    assert out.index("scale-64") < out.index("row-prints")


def test_json_has_the_version_the_machine_and_every_entry(run):
    status, out, _ = run("claims", "scale-64", "mask-inf", "--json")
    data = json.loads(out)
    assert status == 0
    assert set(data) == {"regard", "machine", "claims"}
    assert data["regard"] == __version__
    assert [entry["id"] for entry in data["claims"]] == ["scale-64", "mask-inf"]
    for entry in data["claims"]:
        assert {name: type(value) for name, value in entry.items()} == PLAIN


def test_the_list_names_every_claim_and_measures_none(run, monkeypatch):
    monkeypatch.setattr("regard.claims.claim.Claim.measure", lambda self: pytest.fail("measured"))
    status, out, _ = run("claims", "--list")
    assert status == 0
    assert [name for name in CLAIMS if name not in out] == []
    listed = json.loads(run("claims", "--list", "--json")[1])
    assert [(one["id"], one["statement"]) for one in listed] == [(c.id, c.statement) for c in CLAIMS.values()]


def test_an_unknown_claim_is_one_line_and_status_2(run):
    status, out, err = run("claims", "scale-46")
    assert (status, out) == (2, "")
    assert err == (
        "regard: there is no claim 'scale-46'; the ledger has 57. Did you mean scale-64 or scale-std? "
        "List them with: regard claims --list\n"
    )


def test_figures_are_written_where_asked(run, tmp_path):
    status, _, err = run("claims", "temperature", "scale-64", "--figures", "some/figures")
    assert status == 0
    assert err == "Wrote 1 figures to some/figures\n"
    assert [path.name for path in (tmp_path / "some" / "figures").iterdir()] == ["temperature.svg"]


def test_the_page_is_written_with_its_figures_beside_it(run, tmp_path):
    (tmp_path / "docs").mkdir()
    status, _, err = run("claims", "temperature", "--docs", "docs/claims.md")
    assert status == 0
    assert err.endswith("Wrote docs/claims.md\n")
    assert "](images/claims/temperature.svg)" in (tmp_path / "docs" / "claims.md").read_text(encoding="utf-8")
    assert (tmp_path / "docs" / "images" / "claims" / "temperature.svg").exists()


def test_the_page_finds_figures_that_are_elsewhere(run, tmp_path):
    (tmp_path / "docs").mkdir()
    run("claims", "temperature", "--docs", "docs/claims.md", "--figures", "drawn")
    assert "](../drawn/temperature.svg)" in (tmp_path / "docs" / "claims.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--docs", "missing/claims.md"), "missing/claims.md cannot be written: there is no such folder."),
        (("--docs", "."), ". cannot be written: it is a folder."),
        (
            ("--figures", "file.txt"),
            "file.txt cannot be created: File exists. Name a folder that can be written to.",
        ),
    ],
)
def test_what_cannot_be_written_is_said_before_anything_is_measured(
    run, tmp_path, monkeypatch, arguments, said
):
    monkeypatch.setattr("regard.claims.claim.Claim.measure", lambda self: pytest.fail("measured"))
    (tmp_path / "file.txt").write_text("")
    status, out, err = run("claims", "scale-64", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"regard: {said}")
