"""Settings that are written as text: NAME=VALUE pairs, callbacks and roles. The check of what a file names and the code
that uses it parse the text here, so that both read the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any


def parse_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE options of an environment or algorithm. Values that are valid JSON are decoded."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise ValueError(f"an option is written NAME=VALUE; found {pair!r}")
        parsed[name] = json_or_text(text)
    return parsed


def json_or_text(text: str) -> Any:
    """Decode the text if it is valid JSON, else return it unchanged."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def parse_callback(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and options of a callback: `NAME,OPTION=VALUE,...`."""
    name, *pairs = re.split(r",(?=\w+=)", text)
    return name, parse_pairs(pairs)


def parse_role(text: str) -> tuple[str, str, list[str]]:
    """Return the pattern, the policy and the settings of a role: 'PATTERN=POLICY,NAME=VALUE,...'."""
    named, _, settings = text.partition(",")
    pattern, _, policy = named.partition("=")
    if not pattern or not policy:
        raise ValueError(
            f"a role is written PATTERN=POLICY, e.g. 'seeker*=seekers', followed by settings as ',NAME=VALUE'; "
            f"found {text!r}"
        )
    return pattern, policy, _split(settings)


def setting(name: str, value: Any) -> str:
    """Return a setting of a role as text. Raises ValueError if the text would be read as something else."""
    text = f"{name}={value}"
    parts = _split(text)
    if parts != [text] or parse_pairs(parts) != {name: value}:
        raise ValueError(f"{name} cannot be {value!r}: it contains commas, brackets or quotes")
    return text


def _split(settings: str) -> list[str]:
    """Split at commas outside brackets: hidden_sizes=[64,64] is one setting."""
    parts, depth = [""], 0
    for letter in settings:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]
