"""What holds for the project as a whole: its layers, its public names, its texts."""

from __future__ import annotations

import ast
import contextlib
import importlib
import json
import os
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError
from packaging.requirements import Requirement

import regard
from processes import python
from regard import Causal, Window, _loading, errors, extension
from regard.scores import DotProduct
from shape_checker import now, sampled

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
MODULES = sorted((SRC / "regard").rglob("*.py"))
PACKAGES = [path for path in MODULES if path.name == "__init__.py"]

# From top to bottom; the table in docs/design.md says the same. `regard` is the root's __init__.py.
LAYERS = (
    ("cli",),
    ("commands",),
    ("display", "exports", "mcp", "report", "testing", "viewer"),
    ("regard",),
    ("claims", "corpus", "eviction", "exercises"),
    ("atlas", "cost", "doctor"),
    ("models",),
    ("nn",),
    ("checking", "distributed", "maps", "tracing"),
    ("engine", "plots"),
    ("stats",),
    ("cards", "masks", "scores"),
    ("extension", "memo", "places", "templating"),
    ("errors",),
)
RANK = {noun: rank for rank, nouns in enumerate(LAYERS) for noun in nouns} | {
    "_loading": len(LAYERS) - 3,
    "_version": len(LAYERS) - 1,
    "__main__": -1,
}


def name_of(path: Path) -> str:
    """The dotted name of a module of the package."""
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def noun_of(module: str) -> str:
    """The part of the package a module belongs to: regard.masks.base is of masks, regard itself of regard."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else module


def imported_names(tree: ast.Module, module: str, is_package: bool) -> set[str]:
    """The dotted names that a module imports, at any depth and for type checkers too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = module.split(".") if is_package else module.split(".")[:-1]
            parents = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "regard"}


def imports_of(tree: ast.Module, module: str, is_package: bool) -> set[str]:
    """The nouns of regard that a module imports."""
    names = imported_names(tree, module, is_package)
    # `from regard import x` means the noun x where there is one, and otherwise the root's own name x.
    return {
        "regard" if len(name.split(".")) == 2 and noun_of(name) not in RANK else noun_of(name)
        for name in names
    }


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules in which each can be reached from each other (strongly connected components)."""
    found: list[list[str]] = []
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:  # Tarjan's algorithm
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            part = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.extend([sorted(part)] if len(part) > 1 else [])

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def import_graph(sources: dict[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """The modules each module imports; a source comes with a flag that is True for an `__init__.py`."""

    def module_of(name: str) -> str:
        return name if name in sources else name.rpartition(".")[0]

    return {
        module: {module_of(name) for name in imported_names(ast.parse(source), module, is_package)}
        & sources.keys() - {module}
        for module, (source, is_package) in sources.items()
    }


def test_no_circle_of_imports_is_left_lazy_or_typed():
    sources = {name_of(path): (path.read_text(), path in PACKAGES) for path in MODULES}
    assert circles(import_graph(sources)) == []


def test_the_circle_test_sees_circles():
    sources = {
        "regard": ("", True),
        "regard.a": ("def late():\n    from regard.b import B", False),
        "regard.b": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from regard import c", False),
        "regard.c": ("import regard.a", False),
        "regard.d": ("from regard import a", False),
    }
    assert circles(import_graph(sources)) == [["regard.a", "regard.b", "regard.c"]]
    assert circles(import_graph(sources | {"regard.c": ("import torch", False)})) == []


def upward_imports(source: str, module: str, is_package: bool = False) -> list[str]:
    """The imports of a module that its layer does not allow, in words."""
    here = noun_of(module)
    if here not in RANK:
        return [f"{here} has no layer: give it one in LAYERS and in docs/design.md"]
    nouns = imports_of(ast.parse(source), module, is_package) - {here}
    return [f"{here} imports {noun}" for noun in sorted(nouns) if RANK.get(noun, -1) <= RANK[here]]


def test_a_module_imports_only_from_layers_below():
    found = {
        name_of(path): upward_imports(path.read_text(), name_of(path), path in PACKAGES) for path in MODULES
    }
    assert {name: upward for name, upward in found.items() if upward} == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("regard.masks.base", "from regard.engine import attention"),
        ("regard.masks.base", "import regard.engine.schedule"),
        ("regard.masks.base", "from regard.scores import DotProduct"),
        ("regard.masks.base", "from ..stats import Entropy"),
        ("regard.engine.torch", "def late():\n    from regard import maps"),
        ("regard.engine.torch", "from regard import attention"),
        ("regard.engine.torch", "import regard"),
        ("regard.errors", "from . import masks"),
        ("regard.newcomer", "import torch"),
    ],
)
def test_the_layer_test_sees_upward_imports(module, source):
    assert len(upward_imports(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("regard.masks.base", "from regard.errors import MaskError\nimport torch"),
        ("regard.masks.base", "from regard.masks.causal import Causal"),
        ("regard.masks.base", "from .causal import Causal\nfrom ..errors import MaskError"),
        ("regard.stats.entropy", "from regard.scores import DotProduct"),
        ("regard.cli", "import regard\nfrom regard import attention, viewer"),
        ("regard.engine.torch", "from regardless import more"),
    ],
)
def test_the_layer_test_allows_downward_imports(module, source):
    assert upward_imports(source, module) == []


def test_the_layers_in_the_design_page_are_the_layers_tested_here():
    section = (ROOT / "docs" / "design.md").read_text().split("## Layers")[1]
    rows = re.findall(r"^\| (`.+?) \|", section.split("\n## ")[0], flags=re.MULTILINE)
    assert tuple(tuple(sorted(re.findall(r"`(\w+)`", row))) for row in rows) == LAYERS


def test_every_extension_point_is_implemented_where_the_list_says():
    declared = {
        f"{name_of(path)}.{parent.name}.{node.name}": name_of(path)
        for path in MODULES
        for parent in ast.walk(ast.parse(path.read_text()))
        if isinstance(parent, ast.ClassDef)
        for node in parent.body
        if isinstance(node, ast.FunctionDef)
        and "extension_point" in {ast.unparse(decorator) for decorator in node.decorator_list}
    }
    assert set(declared) == set(_loading.IMPLEMENTATIONS)
    for point, home in _loading.IMPLEMENTATIONS.items():
        importlib.import_module(declared[point])
        importlib.import_module(home)
        assert extension._implementations[point].__module__ == home


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("q = torch.zeros(1, 2, 3, 8); print(regard.AttentionMap.of(q, q).show(head=1).head)", "1"),
        ("print(regard.Recording.open('nowhere'))", "nowhere is not a recording"),
        ("print((regard.Causal() & ~regard.Window(1)).pairs(3))", "3"),
    ],
)
def test_a_method_implemented_in_a_higher_module_works_after_import_regard_alone(script, shown):
    done = python("-c", f"import regard, torch; {script}")
    assert shown in done.stdout + done.stderr


def modules_loaded_by(statement: str) -> set[str]:
    """The top-level modules a fresh interpreter holds after a statement."""
    done = python("-c", f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))")
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stdout)}


def test_import_regard_loads_nothing_before_first_use():
    extra = modules_loaded_by("import regard") - modules_loaded_by("import typing, importlib.util")
    assert extra - set(sys.stdlib_module_names) == {"regard"}


def test_what_regard_exports_loads_nothing_but_torch_and_jaxtyping():
    # What torch itself drags along (sympy, on some machines triton) is not ours to judge.
    extra = modules_loaded_by("from regard import attention, observe") - modules_loaded_by(
        "import jaxtyping, torch"
    )
    assert extra - set(sys.stdlib_module_names) == {"regard"}


def test_the_help_of_commands_waits_for_no_torch():
    assert "torch" not in modules_loaded_by("import regard.cli")


def test_modules_and_names_of_the_package_are_there_without_an_import_of_theirs():
    script = "import regard; print(*dir(regard)); regard.stats.Entropy, regard.errors, regard.Causal"
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert {*regard.__all__} <= {*done.stdout.split()}


@pytest.mark.parametrize("name", ["nothing_like_it", "_private", "__wrapped__"])
def test_what_the_package_does_not_have_is_no_attribute(name):
    assert not hasattr(regard, name)


def is_reexport(node: ast.stmt) -> bool:
    """Whether a statement belongs in an `__init__.py`."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.FunctionDef(name="__getattr__" | "__dir__"):
            return True
        case ast.If(
            test=ast.Name(id="TYPE_CHECKING") | ast.UnaryOp(op=ast.Not(), operand=ast.Name("TYPE_CHECKING")),
            orelse=[],
        ):
            return all(is_reexport(child) for child in node.body)
    return False


def test_an_init_only_reexports():
    assert [
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in PACKAGES
        for node in ast.parse(path.read_text()).body
        if not is_reexport(node)
    ] == []


@pytest.mark.parametrize("source", ["x = 1", "def helper(): ...", "class A: ...", "if TYPE_CHECKING: x = 1"])
def test_the_init_test_sees_code(source):
    assert not is_reexport(ast.parse(source).body[0])


def listing_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by alphabet: the order ruff sorts `__all__` in."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("path", PACKAGES, ids=name_of)
def test_all_is_sorted_and_every_name_in_it_exists(path):
    package = importlib.import_module(name_of(path))
    names = getattr(package, "__all__", [])  # a package may re-export nothing
    assert all(listing_order(a) < listing_order(b) for a, b in pairwise(names)), names
    assert [name for name in names if not hasattr(package, name)] == []


def undocumented(source: str) -> list[str]:
    """The public classes and functions of a module without a docstring; and the module, if it has none.

    Read from the source: a dataclass without a docstring writes itself one when it is imported.
    """
    tree = ast.parse(source)
    exported = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    missing = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            public = node.name in exported[0] if exported else not node.name.startswith("_")
            missing += [node.name] if public and not ast.get_docstring(node) else []
    return missing


def test_every_public_name_has_a_docstring():
    found = {name_of(path): undocumented(path.read_text()) for path in MODULES}
    assert {name: bare for name, bare in found.items() if bare} == {}


def test_the_docstring_test_sees_a_bare_class():
    assert undocumented("@dataclass\nclass Bare:\n    x: int\n\ndef _own(): ...") == ["the module", "Bare"]


SKIPPED = {"build", "dist", "node_modules", "site", "__pycache__"}


def project_texts():
    """Every text file of the project, outside what is hidden, generated or installed."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in SKIPPED and (not f.startswith(".") or f == ".ci")]
        # In a linked worktree .git is a file that holds a path.
        for path in (Path(folder) / file for file in files if file != ".git"):
            try:
                yield path.relative_to(ROOT), path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue


MACHINE_PATH = re.compile(r"(?<![\w.~:<>/*-])/(?:home|root|work|Users)\b")


def test_no_file_mentions_a_path_of_one_machine():
    found = [f"{path}: {match[0]}" for path, text in project_texts() for match in MACHINE_PATH.finditer(text)]
    assert found == []


def test_the_path_test_sees_machine_paths_and_no_others():
    somewhere = "/".join(["", "root", "x"])
    assert MACHINE_PATH.search(f"open('{somewhere}')")
    assert not MACHINE_PATH.search(f"https://example.org{somewhere} framework/x <{somewhere[:5]}>")


def test_everything_the_project_asks_for_is_held_to_one_release():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    assert {re.split(r"[^\w-]", line)[0] for line in asked} - {"regard"} == pins().keys() - {"pip", "uv"}


def pins() -> dict[str, str]:
    """The release of each package that constraints.txt names."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def refused(package: str, requirements: list[str], held: dict[str, str]) -> list[str]:
    """The requirements of a package that the pins contradict: pip would install nothing."""
    found = []
    for requirement in map(Requirement, requirements):
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        release = held.get(requirement.name)
        if applies and release and not requirement.specifier.contains(release):
            found.append(f"{package} asks for {requirement}; constraints.txt says {release}")
    return found


def test_no_pin_contradicts_what_another_pinned_package_asks_for():
    held, installed = pins(), {}
    for name, release in held.items():
        with contextlib.suppress(PackageNotFoundError):
            if version(name).partition("+")[0] == release:
                installed[name] = requires(name) or []
    assert "torch" in installed
    assert [line for name, asked in installed.items() for line in refused(name, asked, held)] == []


def test_the_pin_of_triton_is_the_one_that_torch_from_pypi_asks_for():
    # A CPU build of torch, which may be the one installed here, asks for no Triton.
    asked = {"2.13.0": "triton==3.7.1"}
    held = pins()
    assert held["torch"] in asked, "add what the new torch's wheel on PyPI asks for"
    assert refused("torch", [asked[held["torch"]]], held) == []
    assert refused("torch", ["triton==3.6.0; sys_platform == 'nowhere'"], held) == []
    assert refused("torch", ["triton==3.6.0"], held) == [
        f"torch asks for triton==3.6.0; constraints.txt says {held['triton']}"
    ]


def test_the_version_has_one_source():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    source = ROOT / project["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{regard.__version__}"' in source.read_text()
    assigned = [path for path in MODULES if re.search(r"^__version__\s*=", path.read_text(), re.MULTILINE)]
    assert assigned == [source]
    assert f"## {regard.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def python_blocks(markdown: str) -> str:
    """The ```python blocks of a page as one program, every line where the page has it."""
    program, inside = [], False
    for line in markdown.splitlines():
        fence = line.startswith("```")
        program.append(line if inside and not fence else "")
        inside = line.strip() == "```python" if fence else inside
    return "\n".join(program)


def test_the_code_in_the_readme_runs_from_top_to_bottom(tmp_path):
    program = python_blocks((ROOT / "README.md").read_text())
    assert program.strip()
    script = tmp_path / "README.py"
    script.write_text(program)
    done = python(str(script))
    assert done.returncode == 0, done.stderr


def test_every_error_is_a_regard_error_and_is_drawn_in_the_tree():
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.RegardError)
        assert re.search(rf"(─ |^ +){name}\b", errors.__doc__, re.MULTILINE), name


def test_exceptions_live_in_errors_and_nothing_asserts():
    own: dict[str, set[str]] = {}
    asserts: list[str] = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                if any(base.endswith(("Error", "Exception")) for base in bases):
                    own.setdefault(name_of(path), set()).add(node.name)
            elif isinstance(node, ast.Assert):
                asserts.append(f"{name_of(path)}:{node.lineno}")
    assert own == {"regard.errors": set(errors.__all__)}
    assert asserts == []


def test_shapes_in_signatures_are_checked_while_testing():
    with pytest.raises(TypeCheckError):
        DotProduct().tile(torch.ones(63), torch.ones(63))


def test_types_in_signatures_without_shapes_are_checked_too():
    for wrong in (lambda: Causal().bind("two", 3), lambda: Window("one")):
        with pytest.raises(TypeCheckError):
            wrong()


@pytest.mark.parametrize(("everything", "checked"), [(False, [*range(1, 17), 32]), (True, [*range(1, 41)])])
def test_of_the_calls_of_a_function_the_first_are_checked_and_one_of_sixteen(
    monkeypatch, everything, checked
):
    monkeypatch.setattr(now, "everything", everything)
    seen: list[bool] = []
    call = sampled(lambda: seen.append(False), lambda: seen.append(True))
    for test in 1, 2:
        monkeypatch.setattr(now, "test", now.test + test)
        seen.clear()
        for _ in range(40):
            call()
        assert [number for number, looked in enumerate(seen, 1) if looked] == checked


def test_what_make_test_leaves_out_is_run_by_another_target_and_by_ci(pytestconfig):
    apart = next(found.APART for found in pytestconfig.pluginmanager.get_plugins() if hasattr(found, "APART"))
    makefile = (ROOT / "Makefile").read_text()
    [long] = re.findall(r"^LONG = ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    long = {ROOT / path for path in long.replace("\\", "").split()}
    mark = "pytest.mark.long"
    assert long == {
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if mark in path.read_text() and path.name != Path(__file__).name
    }
    assert "\t@$(PYTEST) -m long $(LONG)\n" in makefile
    assert "\t@$(PYTEST) tests/engine/triton\n" in makefile
    assert "\t@$(PYTEST) --exhaustive\n" in makefile
    assert "run: make exhaustive" in (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    assert {ROOT / "tests/engine/triton", *long} >= set(apart)
    assert all(path.exists() for path in apart)
    said = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [line for line in said if line.startswith("make")] == [
        f"make {goal}" for goal in ("test", "types", "kernels", "long")
    ]
