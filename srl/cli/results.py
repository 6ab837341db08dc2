"""The commands that look at what was trained: `srl eval`, `record`, `plot` and `export`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from srl.api.lanes import LONGEST_EPISODE
from srl.storage import ROOT


@dataclass(frozen=True)
class Eval:
    """Play whole episodes with a trained policy and tell their returns."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`."""
    episodes: int = 100
    """How many episodes."""
    sample: bool = False
    """Draw actions as in training, instead of the likeliest."""
    max_steps: int = LONGEST_EPISODE
    """Steps after which an episode is cut off: it need not end."""
    checkpoint: str = "latest"
    """Which checkpoint: `latest`, `best`, the number of its steps, or its path."""
    seed: int = 0
    """Of the environments, and of drawn actions."""
    json: bool = False
    """One line of JSON instead of a sentence."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.base.statistics import mean_of
        from srl.results.evaluate import evaluate
        from srl.storage.run_directory import find

        found = find(self.run_name, self.root)
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
            facts = {
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
            print(json.dumps(facts))
            return 0
        low, high = min(result.returns), max(result.returns)
        print(
            f"{found.name}, {result.checkpoint.name}: return {result.mean:.1f} ± {result.interval:.1f} (95 % interval "
            f"of the mean) over {len(result.returns)} episodes, from {low:.1f} to {high:.1f}"
        )
        if result.truncated:
            print(
                f"{result.truncated} of the episodes did not end within {self.max_steps:,} steps and were truncated "
                "(--max-steps); their returns are what they earned until then"
            )
        if len(means) > 1:
            print("\n".join(f"  {name}: {mean.value:.1f} ± {mean.interval:.1f}" for name, mean in means.items()))
        return 0


@dataclass(frozen=True)
class Plot:
    """Draw learning curves: mean and 95 % interval over seeds, for several groups of runs.

    Runs that differ in nothing but their seed are one curve. Drawn in the terminal; with --out also as a picture.

    Examples:
      srl plot latest
      srl plot runs/my-sweep --out curves.pdf
      srl plot sync=runs/a async=runs/b --x time --out curves.png
    """

    runs: Positional[tuple[str, ...]]
    """Runs (path, name or `latest`) or directories of runs, such as a seed sweep; `label=RUN` for a label of yours."""
    metric: str = "return"
    """`return`, `eval`, `length`, `fps`, or any name in metrics.jsonl."""
    x: Literal["steps", "time"] = "steps"
    """The horizontal axis."""
    out: Path | None = None
    """Write a picture there: .png, .pdf or .svg."""
    title: str = ""
    """Above the picture; by default the environment."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from rich.console import Console

        from srl.results.plot import bands_of, check_format, draw, draw_in_terminal, find_groups, save

        if self.out is not None:
            check_format(self.out)
        groups = find_groups(self.runs, self.root)
        bands = bands_of(groups, self.metric, self.x)
        console = Console()
        console.print(draw_in_terminal(groups, bands, self.x, min(100, console.width - 1), 18 + len(groups)))
        if self.out is not None:
            save(draw(groups, bands, self.metric, self.x, self.title), self.out)
            print(f"{self.out} written")
        return 0


@dataclass(frozen=True)
class Record:
    """Film a trained policy: an mp4 or a gif.

    Examples:
      srl record latest
      srl record runs/pong --out pong.gif --episodes 2 --checkpoint best
    """

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`."""
    out: Path | None = None
    """Video file, .mp4 or .gif (default: video.mp4 in the run's directory)."""
    episodes: int = 1
    """So many episodes."""
    max_frames: int = 3000
    """At most so many pictures."""
    fps: int = 30
    """Pictures per second."""
    sample: bool = False
    """Draw actions as in training, instead of the likeliest."""
    checkpoint: str = "latest"
    """Which checkpoint: `latest`, `best`, the number of its steps, or its path."""
    seed: int = 0
    """Of the environment, and of drawn actions."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.results.record import record
        from srl.storage.run_directory import find

        film = record(
            find(self.run_name, self.root).path,
            self.out,
            episodes=self.episodes,
            max_frames=self.max_frames,
            fps=self.fps,
            greedy=not self.sample,
            seed=self.seed,
            checkpoint=self.checkpoint,
        )
        told = ", ".join(f"{value:.1f}" for value in film.returns) or "none ended"
        print(f"{film.path} written: {film.frames} frames; returns of its episodes: {told}")
        return 0


@dataclass(frozen=True)
class Export:
    """Write a trained policy as ONNX, which runs without srl and without torch.

    Observations in; likeliest action, distribution parameters and value out. Normalizers, masks and the bounds of
    actions are included.
    """

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its path, its name, a unique beginning of its name, or `latest`; or the directory of a checkpoint."""
    out: Path | None = None
    """The file; by default policy.onnx in the run's directory."""
    policy: str = ""
    """Which policy, where a run has several."""
    checkpoint: str = "latest"
    """Which checkpoint: `latest`, `best`, the number of its steps, or its path."""
    root: Path = ROOT
    """Directory below which runs are kept."""

    def run(self) -> int:
        from srl.results.export import export
        from srl.storage.checkpoints import is_checkpoint
        from srl.storage.run_directory import find

        named = Path(self.run_name)
        source = named if is_checkpoint(named) else find(self.run_name, self.root).path
        done = export(source, self.out, policy=self.policy, checkpoint=self.checkpoint)
        print(f"{done.path} written: {', '.join(done.inputs)} -> {', '.join(done.outputs)}")
        checked = "onnxruntime gives the same actions as the policy"
        print(checked if done.checked else "not checked: onnxruntime is not installed")
        return 0
