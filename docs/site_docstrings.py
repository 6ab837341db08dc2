"""Griffe extension: docstrings as SRL writes them. Roles of Sphinx become links, comments behind fields become their
docstrings."""

from __future__ import annotations

import io
import re
import tokenize
from typing import Any

import griffe

ROLE = re.compile(r":(?:func|class|meth|mod|data):`~?([^`]+)`")


class SrlDocstrings(griffe.Extension):
    """Adapts the docstrings of every object after it was read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(_reference, obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is None and (text := _comment(attr)):
            attr.docstring = griffe.Docstring(text, lineno=attr.lineno, parent=attr)


def _reference(found: re.Match[str]) -> str:
    """Return a link to an object, or its name if the site does not show it."""
    return f'<autoref identifier="{found[1]}" optional><code>{found[1]}</code></autoref>'


def _comment(attr: griffe.Attribute) -> str:
    """Return the comment at the end of an attribute's line, as a sentence."""
    if not isinstance(attr.parent, griffe.Class) or not attr.lineno:
        return ""
    lines = attr.parent.module.lines_collection[attr.filepath][attr.lineno - 1 : attr.endlineno]
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO("\n".join(lines).strip()).readline))
    except (tokenize.TokenError, IndentationError):
        return ""
    found = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    found = [text for text in found if not text.startswith(("type:", "noqa", "fmt:"))]
    return f"{found[-1][0].upper()}{found[-1][1:].removesuffix('.')}." if found else ""
