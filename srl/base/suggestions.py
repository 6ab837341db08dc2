"""The end of an error message about a wrong word: what the user may have meant, or what there is."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LISTED = 20


def nearest(word: str, valid: Iterable[str]) -> str:
    """`; did you mean 'cartpole'?`, or `; valid ones: a, b, c` when nothing comes close."""
    from difflib import get_close_matches  # only a wrong word needs it

    names = sorted(set(valid))
    if not names:
        return "; there are none"
    folded = {_fold(name): name for name in reversed(names)}
    close = get_close_matches(_fold(word), folded, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    listed = ", ".join(names[:MOST_LISTED])
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"; valid ones: {listed}{more}"


def _fold(name: str) -> str:
    return name.lower().replace("-", "_")
