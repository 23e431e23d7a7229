"""Running a command as a user does, and recordings to run it on."""

from __future__ import annotations

import pytest

from regard.cli import main
from regard.models import bundled, record

STORY = "The badger lit the lamp. The heron saw the lamp, and the badger saw the heron. " * 8


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs a command in an empty folder; gives its exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return command


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A recording on disk: two layers of the bundled model on a short text."""
    path = tmp_path_factory.mktemp("recordings") / "short.regard"
    record(bundled(), STORY, layers=[5, 6], store=path)
    return path
