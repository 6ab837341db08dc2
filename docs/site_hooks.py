"""MkDocs hooks: pages from the command line's own options, and links from `docs/` to other files of the repository.

A page that contains `<!-- generated: NAME -->` gets the text of the function NAME in `GENERATED`. A link to a file
outside of `docs/`, such as `../examples/own_network.py`, leads to a page that shows the file.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from srl.cli import help as cli_help
from srl.cli.flags import algorithm_options, run_options
from srl.cli.main import GROUPS, command_class
from srl.cli.parser import AlgorithmCommand, Option, options_of
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class
from srl.experiments.options.keywords import ALGO
from srl.experiments.options.train_options import SECTION_OF, SECTIONS, TrainOptions
from srl.experiments.recipes.single_agent import RECIPES

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Markdown files at the root of the repository -> their pages. The README's page is the site's own first page."""
LANGUAGES = {".py": "python", ".ipynb": "json", ".toml": "toml", ".sh": "sh"}
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
LIST = re.compile(r"^((?![-|>#])\S[^\n]*)\n(?=- )", re.MULTILINE)  # GitHub needs no empty line before a list
MARK = re.compile(r"<!-- generated: ([a-z-]+) -->")


# What the pages show.


def commands() -> str:
    """Every command by group: usage, description, options and examples."""
    parts = []
    for group, names in GROUPS.items():
        parts.append(f"## {group}")
        for name in names:
            parts += _command(name)
    return "\n\n".join(parts)


def train_options() -> str:
    """Every option of a run by section; the options of algorithms have their own page."""
    options = {option.name: option for option in run_options(TrainOptions(), ALGORITHMS[0])}
    parts = []
    for section, kind in SECTIONS.items():
        members = [option for name, option in options.items() if SECTION_OF.get(name) == section]
        if section == "run":
            members.insert(0, options["algo"])
        parts += [f"## {section.capitalize()}", _paragraph(kind.__doc__ or ""), _table(members)]
    return "\n\n".join(parts)


def algorithm_pages() -> str:
    """Every algorithm: all options of the first one, and what the others add or preset."""
    first = {option.name: option for option in algorithm_options(ALGORITHMS[0], TrainOptions())}
    parts = []
    for algo in ALGORITHMS:
        about, _ = cli_help.docstring_of(algorithm_class(algo))
        options = algorithm_options(algo, TrainOptions())
        shown = options if algo == ALGORITHMS[0] else [option for option in options if _differs(option, first)]
        parts += [f"## {algo}", _paragraph(about)]
        if algo != ALGORITHMS[0]:
            same = len(options) - len(shown)
            parts.append(
                f"{same} options are those of [{ALGORITHMS[0]}](#{ALGORITHMS[0]}). The others:"
                if same
                else "All options:"
            )
        parts.append(_table(shown))
    return "\n\n".join(parts)


def recipes() -> str:
    """Every recipe with its values and their reasons."""
    parts = []
    for recipe in RECIPES:
        parts += [f"## {recipe.name}", f"{recipe.about}."]
        if recipe.patterns:
            parts.append("Used for: " + ", ".join(f"`{pattern}`" for pattern in recipe.patterns))
        rows = [(setting, scope) for scope, settings in recipe.scopes() for setting in settings]
        if rows:
            lines = ["| option | value | for | reason |", "|---|---|---|---|"]
            for setting, scope in rows:
                lines.append(
                    f"| `{setting.option}` | `{cli_help.shown_value(setting.value)}` | {scope} | {_cell(setting.why)} |"
                )
            parts.append("\n".join(lines))
        else:
            parts.append("The defaults of all options.")
    return "\n\n".join(parts)


def decisions() -> str:
    """Links to all decisions, with their titles."""
    return "\n".join(f"- [{title_of(path)}]({path.name})" for path in decision_files())


GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "options": train_options,
    "algorithms": algorithm_pages,
    "recipes": recipes,
    "decisions": decisions,
}


def decision_files() -> list[Path]:
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def title_of(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")


def _command(name: str) -> list[str]:
    kind = command_class(name)
    about, examples = cli_help.docstring_of(kind)
    own = sorted(options_of(kind), key=lambda option: not option.positional)
    words = [f"{o.metavar}" if o.required else f"[{o.metavar}]" for o in own if o.positional]
    parts = [f"### srl {name} {{ #{name} }}", f"```text\nsrl {' '.join([name, *words, '[options]'])}\n```"]
    parts.append(_paragraph(about))
    if issubclass(kind, AlgorithmCommand):
        run = " [options of a run](options.md) and" if name != "check-algo" else ""
        parts.append(f"Also takes the{run} [options of the algorithm](algorithms.md).")
    parts.append(_table(own))
    if examples:
        parts.append("```sh\n" + "\n".join(examples) + "\n```")
    return parts


def _differs(option: Option, first: dict[str, Option]) -> bool:
    return option.name not in first or option.default != first[option.name].default


def _table(options: Sequence[Option]) -> str:
    lines = ["| option | default | |", "|---|---|---|"]
    for option in options:
        text, _, described = option.text.partition(" Default: ")
        if option.choices and not all(f"`{choice}`" in text for choice in option.choices):
            text += f" One of {', '.join(f'`{choice}`' for choice in option.choices)}."
        default = _cell(described.removesuffix(".")) if described else _default(option)
        lines.append(f"| `{_cell(cli_help._left(option))}` | {default} | {_cell(text)} |")
    return "\n".join(lines)


def _default(option: Option) -> str:
    if option.is_switch:
        return f"yes (`{option.flag.replace('--', '--no-', 1)}`)" if option.default is True else "no"
    if option.default is MISSING:
        return "required"
    if option.default in (None, "", ()):
        return "none" if option.name.startswith(ALGO) or option.positional else ""
    return f"`{_cell(cli_help.shown_value(option.default))}`"


def _paragraph(text: str) -> str:
    return "\n\n".join(_plain(" ".join(part.split())) for part in text.strip().split("\n\n"))


def _cell(text: str) -> str:
    return _plain(" ".join(text.split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return text of a docstring as Markdown: without Sphinx's roles, and with `<` outside of code escaped."""
    text = re.sub(r":(?:func|class|meth|mod):`~?([^`]+)`", r"`\1`", text)
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
        for part in parts
    )


# Links.


def page_of(file: Path) -> str:
    """Return the page that shows a file or directory of the repository, relative to the site, or an empty string."""
    if file == DOCS / "decisions":
        return "decisions/README.md"
    if not file.is_file() or not file.is_relative_to(ROOT):
        return ""
    name = file.relative_to(ROOT).as_posix()
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    return PAGES.get(name, f"source/{name}.md" if file.suffix in LANGUAGES else f"source/{name}")


def rewritten(text: str, folder: Path, page: str) -> str:
    """Return Markdown whose links, relative to `folder`, are links between pages of the site, relative to `page`."""

    def link(found: re.Match[str]) -> str:
        if "://" in found[1] or found[1].startswith("mailto:"):
            return found[0]
        target = page_of(Path(os.path.normpath(folder / found[1])))
        return f"{posixpath.relpath(target, posixpath.dirname(page) or '.')}{found[2] or ''}" if target else found[0]

    return outside_code(text, lambda part: LINK.sub(link, part))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to Markdown outside of its code blocks."""
    parts = re.split(r"(^```.*?^```[^\S\n]*$)", text, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def linked_files(folders: Iterable[tuple[Path, str]]) -> set[Path]:
    """Return the files outside of `docs/` that Markdown texts link to; each text comes with its folder."""
    found = set()
    for folder, text in folders:
        for match in LINK.finditer(text):
            file = Path(os.path.normpath(folder / match[1]))
            if file.is_file() and file.is_relative_to(ROOT) and not file.is_relative_to(DOCS):
                found.add(file)
    return found


def source_page(file: Path) -> str:
    """Return a page that shows a file."""
    text, name = file.read_text(), file.relative_to(ROOT).as_posix()
    if file.suffix == ".ipynb":
        return f"# {name}\n\n{_notebook(text)}"
    fence = "`" * 4
    return (
        f"---\nsearch:\n  exclude: true\n---\n# {name}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n{text}{fence}\n"
    )


def _notebook(text: str) -> str:
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source.replace("# ", "## ", 1))
    return "\n\n".join(parts)


# Events of MkDocs.


def on_config(config: Any) -> Any:
    """Put all decisions into the navigation."""
    pages = ["decisions/README.md", *(f"decisions/{path.name}" for path in decision_files())]
    for section in config.nav:
        for title, entries in section.items():
            if isinstance(entries, list):
                section[title] = [
                    {"Decisions": pages} if entry == {"Decisions": "decisions/"} else entry for entry in entries
                ]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add pages for files outside of `docs/`."""
    from mkdocs.structure.files import File, InclusionLevel

    outside = [ROOT / name for name in PAGES if name != "README.md"]
    texts = [(DOCS / f.src_uri).parent for f in files.documentation_pages()]
    sources = [(folder, f.content_string) for folder, f in zip(texts, files.documentation_pages(), strict=True)]
    sources += [(ROOT, file.read_text()) for file in outside]
    for file in sorted({*outside, *linked_files(sources)} - {ROOT / "README.md"}):
        page = page_of(file)
        if file in outside:
            files.append(File.generated(config, page, content=file.read_text()))
        elif file.suffix in LANGUAGES:
            files.append(File.generated(config, page, content=source_page(file), inclusion=InclusionLevel.NOT_IN_NAV))
        else:
            files.append(File.generated(config, page, abs_src_path=str(file), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Fill in generated parts, and adapt links."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    text = MARK.sub(lambda found: GENERATED[found[1]](), markdown)
    folder = ROOT if uri in PAGES.values() and not (DOCS / uri).exists() else (DOCS / uri).parent
    return outside_code(rewritten(text, folder, uri), lambda part: LIST.sub(r"\1\n\n", part))
