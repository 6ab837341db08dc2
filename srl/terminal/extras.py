"""Which of the package's extras are installed, by what its own metadata says they need."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement

BUNDLES = ("all", "dev")
"""Extras that only gather others."""


def extras_of(package: str = "srl") -> dict[str, list[str]]:
    """Extra -> what is missing for it, such as `ale-py` or `mujoco>=3.4 (3.2 is installed)`."""
    names = metadata(package).get_all("Provides-Extra") or []
    return {name: sorted(set(_missing(package, name))) for name in sorted(names) if name not in BUNDLES}


def _missing(package: str, extra: str) -> Iterator[str]:
    for line in requires(package) or []:
        wanted = Requirement(line)
        if wanted.marker is None or not wanted.marker.evaluate({"extra": extra}) or wanted.marker.evaluate():
            continue  # it is not for this extra
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            yield wanted.name
            continue
        if not wanted.specifier.contains(found, prereleases=True):
            yield f"{wanted.name}{wanted.specifier} ({found} is installed)"
        for inner in wanted.extras:
            yield from _missing(wanted.name, inner)
