"""The examples of the classic mechanisms run and learn, on less than their own budget."""

from __future__ import annotations

import random

import pytest

from examples.running import PNG, example

pytestmark = pytest.mark.long


def test_bahdanaus_attention_finds_the_parts_of_a_date(tmp_path, capsys):
    result = example("bahdanau_alignment").main(steps=45, out=tmp_path / "map.png")
    assert result.accuracy > 0.5
    assert result.alignment > 2 * result.chance
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)
    assert "step   45" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["global", "local-p"])
def test_luongs_attention_finds_the_word_of_a_digit(where, tmp_path):
    result = example("luong_alignment").main(where=where, steps=70, out=tmp_path / "map.png")
    assert result.accuracy > 0.3
    assert result.alignment > 2 * result.chance
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)


def test_decomposable_attention_learns_what_follows(tmp_path):
    result = example("decomposable_inference").main(steps=400, out=tmp_path / "map.png")
    assert result.accuracy > 0.6
    assert result.alignment > 2 * result.chance
    assert (tmp_path / "map.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("number", "words", "source"),
    [
        (7, "seven", [0]),
        (15, "fifteen", [0, 0]),
        (20, "twenty", [0, None]),
        (907, "nine hundred seven", [0, None, 2]),
        (42_900, "forty two thousand nine hundred", [0, 1, 3, None, None]),
        (
            615_036,
            "six hundred fifteen thousand thirty six",
            [0, 2, 2, None, 4, 5],
        ),
    ],
)
def test_numbers_are_spelled_and_each_digit_knows_its_word(number, words, source):
    spelled = example("luong_alignment").spelled(number)
    assert (" ".join(spelled.words), spelled.source) == (words, source)


def test_dates_know_which_part_each_letter_belongs_to():
    module = example("bahdanau_alignment")
    for seed in range(50):
        date = module.random_date(random.Random(seed))
        parts = {
            part: "".join(c for c, p in zip(date.text, date.parts, strict=True) if p == part)
            for part in "ymd"
        }
        assert parts["y"] + parts["d"].zfill(2) == date.digits[:4] + date.digits[6:]
        assert module.MONTHS[int(date.digits[4:6]) - 1].startswith(parts["m"])


def test_a_verdict_is_what_the_rules_make_it():
    module = example("decomposable_inference")
    rng, premises = random.Random(0), module.clauses()
    seen = set()
    for _ in range(300):
        pair = module.random_pair(premises, rng)
        changed = [w for w, s in zip(pair.hypothesis, pair.source, strict=True) if s is not None and w != s]
        against = [w for w in changed if w not in module.SAME.values() or w in module.OPPOSITE]
        seen.add(pair.verdict)
        assert (None in pair.source) == (pair.verdict == 2)
        assert pair.verdict != 1 or against
        assert all(s is None or s in pair.premise for s in pair.source)
    assert seen == {0, 1, 2}
