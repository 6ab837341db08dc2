"""Commands that use trained policies and records: `srl eval`, `plot`, `episodes`, `record`, `export` and `league`."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from srl.api.lanes import LONGEST_EPISODE
from srl.base.files import write_whole
from srl.cli.parser import RunCommand, TrustCommand, flag, positional
from srl.experiments.options.setting_texts import parse_pairs
from srl.storage import ROOT
from srl.terminal.formatting import figure, plural


@dataclass(frozen=True, kw_only=True)
class PlayCommand(RunCommand, TrustCommand):
    """Fields shared by commands that play episodes with a trained policy."""

    sample: bool = False
    """Sample actions as in training, instead of taking the most likely ones."""
    checkpoint: str = "latest"
    """Checkpoint: `latest`, `best`, its name, its number of steps, or its path."""
    seed: int = 0
    """Seed for environments and sampled actions."""
    env: str = flag("ENV", "")
    """Another environment with the same observations and actions. Default: the run's own."""
    env_arg: tuple[str, ...] = flag("NAME=VALUE", (), repeated=True)
    """Option of the environment; can be repeated. The run's own environment keeps its other options."""


@dataclass(frozen=True)
class Eval(PlayCommand):
    """Play whole episodes with a trained policy and report returns, success rates and other facts.

    Facts are what the environment reports at the end of an episode. The rate of `is_success` has a Wilson interval.

    Examples:
      srl eval latest --checkpoint best
      srl eval latest --env-arg shaped=false
      srl eval latest --env my_module:harder --episodes 500
    """

    episodes: int = 100
    """Number of episodes."""
    max_steps: int = LONGEST_EPISODE
    """Steps after which an episode is truncated, for episodes that may never end."""
    simulations: int | None = None
    """Simulations per decision of a policy that searches (muzero); 0: its network decides without a search. Default: as
    in training."""
    json: bool = False
    """Print one line of JSON."""

    def run(self) -> int:
        from srl.base.statistics import mean_of
        from srl.results.evaluate import evaluate, summary

        found = self.find()
        result = evaluate(
            found.path,
            episodes=self.episodes,
            greedy=not self.sample,
            seed=self.seed,
            checkpoint=self.checkpoint,
            max_steps=self.max_steps,
            env=self.env,
            env_args=parse_pairs(self.env_arg),
            simulations=self.simulations,
            trust_code=self.trust_code,
        )
        if self.json:
            report = {
                "run": found.name,
                "checkpoint": result.checkpoint.name,
                "episodes": result.episodes,
                "mean": result.mean,
                "interval": result.interval if len(result.returns) > 1 else None,
                "returns": result.returns,
                "lengths": result.lengths,
                "truncated": result.truncated,
                "max_steps": self.max_steps,
                "policies": {name: mean_of(returns).value for name, returns in result.by_policy.items()},
                "facts": result.facts,
            }
            print(json.dumps(report))
            return 0
        where = f" in {self.env}" if self.env else ""
        print(f"{found.name}, {result.checkpoint.name}{where}: {plural(result.episodes, 'episode')}")
        print("\n".join(f"  {line}" for line in summary(result)))
        if result.truncated:
            print(
                f"{result.truncated} of the episodes did not end within {self.max_steps:,} steps and were truncated "
                "(--max-steps); their returns so far count"
            )
        return 0


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: mean and 95 % interval over seeds, for several groups of runs.

    Runs that differ only in their seed form one curve, or one per policy if there are several. Each environment has its
    own panel. Draws in the terminal and, with --out, also to a file.

    Examples:
      srl plot latest
      srl plot runs/my-sweep --out curves.pdf --width column
      srl plot sync=runs/a async=runs/b --x time --out curves.png
      srl plot latest --metric entropy --smooth 0.9
    """

    runs: tuple[str, ...] = positional("RUN")
    """Runs (path, name or `latest`) or directories of runs, such as a sweep; `label=RUN` sets a label."""
    metric: str = flag("NAME", "return")
    """Metric: `return`, `eval`, `length`, `fps`, or any name in metrics.jsonl or system.jsonl."""
    x: Literal["steps", "time", "episodes"] = "steps"
    """Horizontal axis."""
    smooth: float = 0.0
    """Weight of an exponential moving average, as in TensorBoard: from 0, the values as they are, to almost 1."""
    out: Path | None = flag("FILE", None)
    """File for the figure: .png, .pdf or .svg."""
    width: str = flag("WIDTH", "")
    """Width of the figure: `column` (3.25 inches), `page` (6.75), or a number of inches. Default: 4.8 inches, more with
    several environments."""
    title: str = ""
    """Title of the figure. Default: the environment."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""

    def run(self) -> int:
        from rich.console import Console

        from srl.results.plot import bands_of, check_format, draw, draw_in_terminal, find_groups, parse_width, save
        from srl.storage.curves import repeated_seeds

        if self.out is not None:
            check_format(self.out)
        width, found = parse_width(self.width), find_groups(self.runs, self.root)
        groups, bands = bands_of(found, self.metric, self.x, self.smooth)
        console = Console()
        console.print(draw_in_terminal(groups, bands, self.x, min(100, console.width - 1), 18))
        for sentence in repeated_seeds(found):
            print(sentence)
        if self.out is not None:
            save(draw(groups, bands, self.metric, self.x, self.title, width), self.out)
            print(f"{self.out} written")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare runs: final and best values with 95 % bootstrap intervals over seeds, time and speed.

    Runs that differ only in their seed form one row. With several environments, the interquartile mean over all of them
    follows, of values that are normalized per environment.

    Examples:
      srl compare runs/my-sweep
      srl compare sync=runs/a async=runs/b --out intervals.pdf --width column
      srl compare runs/atari --normalize Pong-v5=-20.7,14.6 --normalize Breakout-v5=1.7,30.5 --latex
    """

    runs: tuple[str, ...] = positional("RUN")
    """Runs (path, name or `latest`) or directories of runs, such as a sweep; `label=RUN` sets a label."""
    metric: str = flag("NAME", "return")
    """Metric: as for `srl plot`."""
    normalize: tuple[str, ...] = flag("ENV=LOW,HIGH", (), repeated=True)
    """Values of an environment that become 0 and 1; can be repeated. Default: the lowest and highest final value."""
    csv: bool = False
    """Print all figures and all options that differ as CSV."""
    markdown: bool = False
    """Print the table in Markdown."""
    latex: bool = False
    """Print the table in LaTeX (booktabs)."""
    out: Path | None = flag("FILE", None)
    """File for a figure of the final values and their intervals: .png, .pdf or .svg."""
    width: str = flag("WIDTH", "")
    """Width of the figure: `column` (3.25 inches), `page` (6.75), or a number of inches."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs."""

    def run(self) -> int:
        from srl.results.compare import compare, parse_limits
        from srl.results.plot import check_format

        if self.csv + self.markdown + self.latex > 1:
            raise ValueError("--csv, --markdown and --latex exclude each other")
        if self.out is not None:
            check_format(self.out)
        limits = parse_limits(self.normalize)
        done = compare(*self.runs, metric=self.metric, normalize=limits, out=self.out, width=self.width, root=self.root)
        table = done.csv if self.csv else done.markdown if self.markdown else done.latex if self.latex else done.__str__
        print(table())
        if self.csv or self.markdown or self.latex:
            print("\n".join(done.notes), file=sys.stderr)
        if self.out is not None:
            print(f"{self.out} written", file=sys.stderr)
        return 0


@dataclass(frozen=True)
class Episodes(RunCommand):
    """Summarize the episodes of a run, or write all of them to a file.

    A row has the step and the update that learned from the end of the episode, the policy, the actor and its host,
    the return, the length, and what the environment reports.

    Examples:
      srl episodes latest
      srl episodes latest --out episodes.parquet
    """

    out: Path | None = flag("FILE", None)
    """File to write: .csv or .parquet."""

    def run(self) -> int:
        from srl.results.runs import load_run
        from srl.storage.episode_file import summary_of, write_episodes

        columns = load_run(self.run_name, self.root).episodes()
        if self.out is None:
            for line in summary_of(columns):
                print(line)
        else:
            write_episodes(columns, self.out)
            print(f"{self.out} written: {plural(len(columns['return']), 'episode')}")
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
    simulations: int | None = None
    """Simulations per decision of a policy that searches, as for `srl eval`."""

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
            env=self.env,
            env_args=parse_pairs(self.env_arg),
            simulations=self.simulations,
            trust_code=self.trust_code,
        )
        returns = ", ".join(f"{figure(value)}" for value in video.returns) or "none ended"
        print(f"{video.path} written: {video.frames} frames; returns of its episodes: {returns}")
        return 0


@dataclass(frozen=True)
class Export(RunCommand, TrustCommand):
    """Export a trained policy to ONNX, which runs without srl and torch.

    Its input is an observation; its outputs are the most likely action, the parameters of the distribution and the
    value. Normalization, action masks and action bounds are included.
    """

    run_name: str = positional("RUN")
    """Run: path, name, unique prefix of a name, or `latest`; or a checkpoint directory."""
    out: Path | None = flag("FILE", None)
    """File to write. Default: policy.onnx in the run's directory."""
    policy: str = flag("NAME", "")
    """Policy to export, for a run with several."""
    checkpoint: str = "latest"
    """Checkpoint: `latest`, `best`, its name, its number of steps, or its path."""

    def run(self) -> int:
        from srl.results.export import export
        from srl.storage.checkpoints import is_checkpoint

        named = Path(self.run_name)
        source = named if is_checkpoint(named) else self.find().path
        done = export(source, self.out, policy=self.policy, checkpoint=self.checkpoint, trust_code=self.trust_code)
        print(f"{done.path} written: policy {done.policy}, {', '.join(done.inputs)} -> {', '.join(done.outputs)}")
        checked = "onnxruntime gives the same actions as the policy"
        print(checked if done.checked else "not checked: onnxruntime is not installed")
        return 0


@dataclass(frozen=True)
class League(RunCommand, TrustCommand):
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
    simulations: int | None = None
    """Simulations per decision of versions that search, as for `srl eval`."""
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
            simulations=self.simulations,
            trust_code=self.trust_code,
        )
        points = [[None if math.isnan(value) else value for value in row] for row in result.points]
        table = json.dumps({"run": found.name, **asdict(result), "points": points})
        with contextlib.suppress(OSError):  # a run of someone else may be read-only
            write_whole(found.league, f"{table}\n".encode())  # the dashboard shows it
        if self.json:
            print(table)
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
            print("\nratings need openskill: pip install 'srl-rl[league]'")
        return 0
