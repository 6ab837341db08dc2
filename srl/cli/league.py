"""The command that lets versions play each other: `srl league`."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from srl.api.lanes import LONGEST_EPISODE
from srl.storage import ROOT


@dataclass(frozen=True)
class League:
    """Let a run's versions play each other, and a random player: a matrix of points and ratings.

    Versions are the checkpoints that were kept (`srl train ENV --keep-every 100000`).

    Examples:
      srl league latest --games 200
      srl league latest --against random --against examples/greedy_opponents.py:connect_four
    """

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`."""
    versions: int = 5
    """At most so many of the kept checkpoints, evenly spread, the newest among them."""
    against: UseAppendAction[tuple[str, ...]] = ()
    """Other players: `random`, or a function as `path/file.py:function`, called with one observation and a numpy
    generator, that returns an action. Can be given several times; `random` if it is not given."""
    games: int = 100
    """Of each pair, on all seats in turn."""
    greedy: bool = False
    """Versions take their likeliest actions instead of drawing them, both of a pair."""
    max_steps: int = LONGEST_EPISODE
    """Moves of all players after which a game is cut off, and drawn: it need not end."""
    seed: int = 0
    json: bool = False
    """One line of JSON instead of a table."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.results.league import league
        from srl.storage.run_directory import find

        found = find(self.run_name, self.root)
        result = league(
            found.path,
            versions=self.versions,
            against=self.against or ("random",),
            games=self.games,
            greedy=self.greedy,
            seed=self.seed,
            max_steps=self.max_steps,
        )
        if self.json:
            facts = dataclasses.asdict(result)
            facts["points"] = [[None if math.isnan(value) else value for value in row] for row in result.points]
            print(json.dumps({"run": found.name, **facts}))
            return 0
        width = max(len(name) for name in result.players)
        print(f"{found.name}: points per game of the row against the column, {result.games} games of each pair\n")
        print(" " * width + "".join(f" {name:>{max(6, len(name))}}" for name in result.players) + "  rating")
        for name, row in zip(result.players, result.points, strict=True):
            cells = [
                f" {'-' if math.isnan(value) else f'{value:.2f}':>{max(6, len(column))}}"
                for column, value in zip(result.players, row, strict=True)
            ]
            rating = f"  {result.ratings[name]:6.1f}" if result.ratings else ""
            print(f"{name:>{width}}{''.join(cells)}{rating}")
        if result.truncated:
            print(
                f"\n{result.truncated} games did not end within {self.max_steps:,} moves and count as drawn "
                "(--max-steps)"
            )
        if not result.ratings:
            print("\nratings need openskill: pip install 'srl[league]'")
        return 0
