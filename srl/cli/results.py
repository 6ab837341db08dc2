"""Commands that use trained policies: `srl eval`, `plot`, `record`, `export` and `league`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from srl.api.lanes import LONGEST_EPISODE
from srl.cli.parser import RunCommand, flag, positional
from srl.storage import ROOT


@dataclass(frozen=True, kw_only=True)
class PlayCommand(RunCommand):
    """Fields shared by commands that play episodes with a trained policy."""

    sample: bool = False
    """Sample actions as in training, instead of taking the most likely ones."""
    checkpoint: str = "latest"
    """Checkpoint: `latest`, `best`, its number of steps, or its path."""
    seed: int = 0
    """Seed for environments and sampled actions."""


@dataclass(frozen=True)
class Eval(PlayCommand):
    """Play whole episodes with a trained policy and report their returns."""

    episodes: int = 100
    """Number of episodes."""
    max_steps: int = LONGEST_EPISODE
    """Steps after which an episode is truncated, for episodes that may never end."""
    json: bool = False
    """Print one line of JSON."""

    def run(self) -> int:
        from srl.base.statistics import mean_of
        from srl.results.evaluate import evaluate

        found = self.find()
        result = evaluate(
            found.path,
            episodes=self.episodes,
            greedy=not self.sample,
            seed=self.seed,
            checkpoint=self.checkpoint,
            max_steps=self.max_steps,
        )
        means = {name: mean_of(returns) for name, returns in result.by_policy.items()}
        if self.json:
            report = {
                "run": found.name,
                "checkpoint": result.checkpoint.name,
                "episodes": len(result.returns),
                "mean": result.mean,
                "interval": result.interval if len(result.returns) > 1 else None,
                "returns": result.returns,
                "lengths": result.lengths,
                "truncated": result.truncated,
                "max_steps": self.max_steps,
                "policies": {name: mean.value for name, mean in means.items()},
            }
            print(json.dumps(report))
            return 0
        low, high = min(result.returns), max(result.returns)
        print(
            f"{found.name}, {result.checkpoint.name}: return {result.mean:.1f} ± {result.interval:.1f} (95 % interval "
            f"of the mean) over {len(result.returns)} episodes, from {low:.1f} to {high:.1f}"
        )
        if result.truncated:
            print(
                f"{result.truncated} of the episodes did not end within {self.max_steps:,} steps and were truncated "
                "(--max-steps); their returns so far count"
            )
        if len(means) > 1:
            print("\n".join(f"  {name}: {mean.value:.1f} ± {mean.interval:.1f}" for name, mean in means.items()))
        return 0


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: mean and 95 % interval over seeds, for several groups of runs.

    Runs that differ only in their seed form one curve, or one per policy if there are several. Draws in the terminal
    and, with --out, also to a file.

    Examples:
      srl plot latest
      srl plot runs/my-sweep --out curves.pdf
      srl plot sync=runs/a async=runs/b --x time --out curves.png
    """

    runs: tuple[str, ...] = positional("RUN")
    """Runs (path, name or `latest`) or directories of runs, such as a sweep over seeds; `label=RUN` sets a label."""
    metric: str = flag("NAME", "return")
    """Metric: `return`, `eval`, `length`, `fps`, or any name in metrics.jsonl."""
    x: Literal["steps", "time"] = "steps"
    """Horizontal axis."""
    out: Path | None = flag("FILE", None)
    """File for the figure: .png, .pdf or .svg."""
    title: str = ""
    """Title of the figure. Default: the environment."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""

    def run(self) -> int:
        from rich.console import Console

        from srl.results.plot import bands_of, check_format, draw, draw_in_terminal, find_groups, save

        if self.out is not None:
            check_format(self.out)
        groups, bands = bands_of(find_groups(self.runs, self.root), self.metric, self.x)
        console = Console()
        console.print(draw_in_terminal(groups, bands, self.x, min(100, console.width - 1), 18 + len(groups)))
        if self.out is not None:
            save(draw(groups, bands, self.metric, self.x, self.title), self.out)
            print(f"{self.out} written")
        return 0


@dataclass(frozen=True)
class Record(PlayCommand):
    """Record a video of a trained policy: an mp4 or a gif.

    Examples:
      srl record latest
      srl record runs/pong --out pong.gif --episodes 2 --checkpoint best
    """

    out: Path | None = flag("FILE", None)
    """File for the video, .mp4 or .gif. Default: video.mp4 in the run's directory."""
    episodes: int = 1
    """Number of episodes."""
    max_frames: int = 3000
    """Maximum number of frames."""
    fps: int = 30
    """Frames per second."""

    def run(self) -> int:
        from srl.results.record import record

        video = record(
            self.find().path,
            self.out,
            episodes=self.episodes,
            max_frames=self.max_frames,
            fps=self.fps,
            greedy=not self.sample,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )
        returns = ", ".join(f"{value:.1f}" for value in video.returns) or "none ended"
        print(f"{video.path} written: {video.frames} frames; returns of its episodes: {returns}")
        return 0


@dataclass(frozen=True)
class Export(RunCommand):
    """Export a trained policy to ONNX, which runs without srl and torch.

    Its input is an observation; its outputs are the most likely action, the parameters of the distribution and the
    value. Normalization, action masks and action bounds are included.
    """

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`; or a checkpoint directory."""
    out: Path | None = flag("FILE", None)
    """File to write. Default: policy.onnx in the run's directory."""
    policy: str = flag("NAME", "")
    """Policy to export, for a run with several. Default: the first."""
    checkpoint: str = "latest"
    """Checkpoint: `latest`, `best`, its number of steps, or its path."""

    def run(self) -> int:
        from srl.results.export import export
        from srl.storage.checkpoints import is_checkpoint

        named = Path(self.run_name)
        source = named if is_checkpoint(named) else self.find().path
        done = export(source, self.out, policy=self.policy, checkpoint=self.checkpoint)
        print(f"{done.path} written: policy {done.policy}, {', '.join(done.inputs)} -> {', '.join(done.outputs)}")
        checked = "onnxruntime gives the same actions as the policy"
        print(checked if done.checked else "not checked: onnxruntime is not installed")
        return 0


@dataclass(frozen=True)
class League(RunCommand):
    """Let the versions of a run play each other and a random player; show points and ratings.

    Versions are the checkpoints that were kept (`srl train ENV --keep-every 100000`).

    Examples:
      srl league latest --games 200
      srl league latest --against random --against examples/greedy_opponents.py:connect_four
    """

    versions: int = 5
    """Maximum number of versions, spread evenly over the kept checkpoints; the newest is always included."""
    against: tuple[str, ...] = flag("PLAYER", (), repeated=True)
    """Other player: `random`, or a function as `path/file.py:function` that takes an observation and a numpy generator
    and returns an action. Can be given several times. Default: random."""
    games: int = 100
    """Number of games per pair; the players alternate sides."""
    greedy: bool = False
    """Take the most likely actions instead of sampling them, for both players."""
    max_steps: int = LONGEST_EPISODE
    """Moves after which a game is truncated and counts as a draw."""
    seed: int = 0
    """Seed for the games."""
    json: bool = False
    """Print one line of JSON."""

    def run(self) -> int:
        from srl.results.league import league

        found = self.find()
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
            points = [[None if math.isnan(value) else value for value in row] for row in result.points]
            print(json.dumps({"run": found.name, **asdict(result), "points": points}))
            return 0
        width = max(len(name) for name in result.players)
        print(f"{found.name}: points per game of the row against the column, {result.games} games per pair\n")
        print(" " * width + "".join(f" {name:>{max(6, len(name))}}" for name in result.players) + "  rating")
        for name, row in zip(result.players, result.points, strict=True):
            cells = [
                f" {'-' if math.isnan(value) else f'{value:.2f}':>{max(6, len(column))}}"
                for column, value in zip(result.players, row, strict=True)
            ]
            rating = f"  {result.ratings[name]:6.1f}" if result.ratings else ""
            print(f"{name:>{width}}{''.join(cells)}{rating}")
        if result.truncated:
            print(f"\n{result.truncated} games did not end within {self.max_steps:,} moves: draws (--max-steps)")
        if not result.ratings:
            print("\nratings need openskill: pip install 'srl[league]'")
        return 0
