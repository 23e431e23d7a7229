"""How the documentation's site is built: what mkdocs does not do by itself.

mkdocs.yml names this file as a hook. It adds

- a reference page for every public package, from its docstrings, and one that lists the names at the root;
- a page for every file of the repository that a page links to, so that `../src/...` leads somewhere on the
  site as it does in a checkout; a link whose text is a name leads to the line that defines it;
- `llms.txt` and a Markdown copy of every page, for language-model agents;
- a check, at the end, that every public name has its entry and that no page loads anything from elsewhere.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from building import llms

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "regard"
# The commands are documented by their --help, and reached through the program.
NOT_PUBLIC = {"commands"}
LINK = re.compile(r"\[(?P<text>[^\]\n]*)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")
LINE = re.compile(r'data-line="(?P<line>\d+)" href="(?P<href>[^"#]+)"')
# The Markdown of each page, as it came out.
PAGES: dict[str, str] = {}
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|object|link)\b[^>]*?"
    r"\b(?:src|href|data|srcset)=[\"']?((?:https?:)?//[^\"'>\s]+)",
    re.IGNORECASE,
)
LOADED_BY_CSS = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


def packages() -> list[str]:
    """The public packages and modules below the root, by their dotted names."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted({*folders, "errors", "nn.classic", "testing"} - NOT_PUBLIC)


def exported(source: str) -> list[str]:
    """The names in a module's `__all__`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return []


def source_of(package: str) -> str:
    """The source of a package's `__init__.py`, or of a module; of the root for an empty name."""
    folder = PACKAGE.joinpath(*package.split(".")) if package else PACKAGE
    return (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).read_text("utf-8")


def names_of(package: str) -> list[str]:
    """The public names of a package, from its source: nothing is imported to build a site."""
    return exported(source_of(package))


def homes_of(package: str) -> dict[str, str]:
    """The module that each name of a package is imported from; the package itself for its own.

    >>> homes_of("engine")["attention"]
    'regard.engine.attention'
    """
    found = dict.fromkeys(names_of(package), f"regard.{package}")
    for node in ast.walk(ast.parse(source_of(package))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("regard."):
            found |= {alias.name: node.module for alias in node.names if alias.name in found}
    return found


def reference_page(package: str) -> str:
    """A package's page: its docstring, then every public name under the name that users import.

    Names are asked for one by one, where they are defined: `attention` of `regard.engine` would otherwise be
    taken for the module of the same name.
    """
    words = ast.get_docstring(ast.parse(source_of(package))) or ""
    parts = [f"# regard.{package}", words]
    for name, home in homes_of(package).items():
        options = f"heading: {name}, toc_label: {name}"
        parts.append(f'<span id="regard.{package}.{name}"></span>')
        parts.append(f"::: {home}.{name}\n    options: {{{options}}}")
    return "\n\n".join(parts) + "\n"


def outside(source: str, path: str) -> str | None:
    """The file of the repository that a link on a page leads to, if it lies outside docs/.

    >>> outside("docs/howto/doctor.md", "../../src/regard/testing.py")
    'src/regard/testing.py'
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    return None if target.startswith("docs/") or not (ROOT / target).is_file() else target


def code_page(target: str) -> str:
    """A file of the repository as a page, with numbered lines."""
    text = (ROOT / target).read_text(encoding="utf-8")
    language = {".py": "python", ".toml": "toml", ".md": "markdown"}.get(Path(target).suffix, "text")
    fence = "`" * 8
    meta = "---\nsearch:\n  exclude: true\n---\n"
    return f'{meta}# {target}\n\n{fence}{language} linenums="1"\n{text.rstrip()}\n{fence}\n'


def line_of(target: str, name: str) -> int | None:
    """The line that defines a function, a class or a constant.

    >>> line_of("building/site.py", "line_of") > line_of("building/site.py", "code_page")
    True
    """
    if not target.endswith(".py"):
        return None
    for node in ast.walk(ast.parse((ROOT / target).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return node.lineno
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name in {ast.unparse(one) for one in targets}:
                return node.lineno
    return None


def sentence_of(module: str, name: str) -> str:
    """The first line of the docstring of a class or function, from its source.

    >>> sentence_of("regard.masks.causal", "Causal")
    'Each query sees its own position and all earlier ones: k <= q + shift.'
    """
    for node in ast.parse(source_of(module.removeprefix("regard."))).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def root_page() -> str:
    """The names at the root, each with the page that documents it.

    >>> "- [`regard.attention`](engine.md#regard.engine.attention): " in root_page()
    True
    """
    lines = ["# Names at the root", "", "`import regard` gives these; each is documented where it lives.", ""]
    # As the root itself imports them: other packages may have names that are spelt alike.
    homes, known = homes_of(""), {*packages()}
    for name in names_of(""):
        # Functions are imported from their modules, and documented with the package.
        home = homes[name].removeprefix("regard.").partition(".")[0]
        if home not in known:
            lines.append(f"- `regard.{name}`")
            continue
        words = sentence_of(homes_of(home)[name], name)
        lines.append(f"- [`regard.{name}`]({home}.md#regard.{home}.{name}): {words}")
    return "\n".join([*lines, "", "Everything else is in a package of its own:", "", *_package_list()]) + "\n"


def _package_list() -> list[str]:
    found = []
    for package in packages():
        words = (ast.get_docstring(ast.parse(source_of(package))) or "").partition("\n")[0]
        found.append(f"- [`regard.{package}`]({package}.md): {words}")
    return found


def on_config(config: Any) -> Any:
    """Put the reference's pages into the navigation."""
    for section in config.nav:
        if isinstance(section, dict) and "Reference" in section:
            pages = [{f"regard.{package}": f"reference/{package}.md"} for package in packages()]
            section["Reference"] = ["reference/index.md", *pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made: the reference, and the files that other pages link to."""
    files.append(File.generated(config, "reference/index.md", content=root_page()))
    for package in packages():
        page = File.generated(config, f"reference/{package}.md", content=reference_page(package))
        files.append(page)
    targets = set()
    for file in files.documentation_pages():
        for link in LINK.finditer(file.content_string):
            targets.add(outside(f"docs/{file.src_uri}", link["path"]))
    for target in sorted(targets - {None}):
        files.append(File.generated(config, f"code/{target}.md", content=code_page(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to the page of that file, and to the line of the name they show."""
    here = posixpath.dirname(page.file.src_uri)
    if page.file.src_uri.startswith("code/"):
        return markdown

    def led(link: re.Match[str]) -> str:
        target = outside(f"docs/{page.file.src_uri}", link["path"])
        if target is None:
            return link[0]
        line = line_of(target, link["text"].strip("`"))
        # Anchors of lines are made after mkdocs has looked for anchors, so the line travels as an attribute.
        attribute = "" if line is None else f'{{ data-line="{line}" }}'
        return f"[{link['text']}]({posixpath.relpath(f'code/{target}.md', here or '.')}){attribute}"

    found = LINK.sub(led, markdown)
    if not page.file.src_uri.startswith("reference/"):
        PAGES[page.file.src_uri] = found
    return found


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:
    """Put the line a link leads to into its address, and take the backslash off `a \\| b` in tables.

    There Markdown as GitHub reads it wants one, even within code, and Markdown as mkdocs reads it shows it.
    """
    html = CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)
    return LINE.sub(r'href="\g<href>#__codelineno-0-\g<line>"', html)


def loaded_from_elsewhere(text: str, suffix: str) -> list[str]:
    """The addresses that a page or a style sheet would load something from.

    >>> loaded_from_elsewhere('<a href="https://x.org">x</a><script src="https://cdn.org/a.js">', ".html")
    ['https://cdn.org/a.js']
    """
    return (LOADED_BY_CSS if suffix == ".css" else LOADED).findall(text)


def reference_text(package: str) -> str:
    """A package's names with the first sentence of each, for those who read Markdown alone."""
    homes = homes_of(package)
    lines = [f"- `{name}`: {sentence_of(home, name)}" for name, home in sorted(homes.items())]
    return "\n".join(
        [f"# regard.{package}", "", ast.get_docstring(ast.parse(source_of(package))) or "", "", *lines, ""]
    )


def on_post_build(config: Any) -> None:
    """Add what agents read; refuse a site that would load something from elsewhere, or leaves a name out."""
    reference = {f"reference/{package}.md": reference_text(package) for package in packages()}
    llms.write(Path(config.site_dir), PAGES, reference)
    site, complaints = Path(config.site_dir), []
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        text = path.read_text(encoding="utf-8")
        addresses = loaded_from_elsewhere(text, path.suffix)
        # The theme fetches the program that draws them from a CDN.
        addresses += ["mermaid"] if 'class="mermaid"' in text else []
        complaints += [f"{path.relative_to(site)} loads {address}" for address in addresses]
    for package in packages():
        page = (site / "reference" / f"{package}.html").read_text(encoding="utf-8")
        ids = {name: f'id="{home}.{name}"' for name, home in homes_of(package).items()}
        missing = [name for name, entry in ids.items() if entry not in page]
        complaints += [f"reference/{package}.html has no entry for {name}" for name in missing]
    if complaints:
        raise PluginError("the site is not as it must be:\n  " + "\n  ".join(complaints))
