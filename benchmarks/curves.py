"""Learning curves of many runs, kept as small CSV files in benchmarks/results, so that a table can grow over months.

    python benchmarks/curves.py add r2d2-remembered runs/r2d2-1 runs/r2d2-2 [--library SRL] [--episodes 100]
    python benchmarks/curves.py table r2d2-remembered
    python benchmarks/curves.py plot r2d2-remembered --out r2d2.png [--title 'R2D2, Remembered']

`add` reads finished runs of SRL and evaluates their last policies greedily (`--episodes 0`: not). The rows of a run
replace those of the same library and seed: the mean return of the last 100 training episodes at up to 50 points, then
the mean of the greedy episodes (`greedy`).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from srl.base.files import replacing
from srl.base.statistics import mean_of
from srl.storage.curves import flat_options, read_curve
from srl.storage.run_directory import RunDirectory

SRL = "SRL"
TRAINING, GREEDY = "training", "greedy"
POINTS = 50
COLUMNS = ("library", "seed", "kind", "step", "seconds", "return")
RESULTS = Path(__file__).with_name("results")


def training_rows(run: Path) -> Iterator[dict[str, Any]]:
    """Yield about POINTS rows of a run's curve, at equal distances, and the last one. A run on recorded data has only
    evaluations."""
    directory = RunDirectory(run)
    offline = flat_options(directory.read_raw_config()).get("run.data")
    curve = read_curve(directory, "eval" if offline else "return")
    due, last = 0.0, len(curve.steps) - 1
    for i, (step, seconds, value) in enumerate(zip(curve.steps, curve.seconds, curve.values, strict=True)):
        if step >= due or i == last:
            due = step + 0.999 * curve.steps[-1] / POINTS
            fields = {"step": int(step), "seconds": round(float(seconds), 1), "return": round(float(value), 2)}
            yield {"kind": TRAINING, **fields}


def greedy_return(run: Path, episodes: int, python: Path | str = sys.executable) -> float:
    """Return the mean return of greedy episodes of a run's last policy."""
    command = [str(python), "-m", "srl", "eval", str(run), f"--episodes={episodes}", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(found.splitlines()[-1])["mean"])


def read(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def keep(file: Path, library: str, seed: int, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a run, in place of those of the same library and seed."""
    others = [row for row in read(file) if (row["library"], row["seed"]) != (library, str(seed))]
    own = [{"library": library, "seed": seed, **row} for row in rows]
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as temporary, temporary.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted([*others, *own], key=lambda row: (row["library"], int(row["seed"]))))


def table(rows: list[dict[str, str]]) -> str:
    """Return the last return of each seed, with mean and 95 % interval."""
    lines = ["| | | steps | return of each seed | mean |", "|---|---|---|---|---|"]
    for library in dict.fromkeys(row["library"] for row in rows):
        for kind in (TRAINING, GREEDY):
            last = {row["seed"]: row for row in rows if (row["library"], row["kind"]) == (library, kind)}
            if last:
                mean = mean_of([float(row["return"]) for row in last.values()])
                spread = f" ± {mean.interval:.2f}" if len(last) > 1 else ""
                steps = "/".join(dict.fromkeys(f"{int(row['step']):,}" for row in last.values()))
                each = ", ".join(f"{float(row['return']):.2f} ({seed})" for seed, row in last.items())
                lines.append(f"| {library} | {kind} | {steps} | {each} | {mean.value:.2f}{spread} |")
    return "\n".join(lines)


def plot(rows: list[dict[str, str]], title: str, out: Path) -> None:
    """Draw the training curves, as `srl plot` does."""
    import srl

    with tempfile.TemporaryDirectory(prefix="srl-curves-") as temporary:
        paths = []
        for row in rows:
            path = Path(temporary) / row["library"]
            run = path / row["seed"]
            if path not in paths:
                paths.append(path)
            if row["kind"] == TRAINING:
                run.mkdir(parents=True, exist_ok=True)
                options = {"algo": row["library"], "seed": int(row["seed"])}
                (run / "config.json").write_text(json.dumps({"environment": title, "options": options}))
                point = {"step": int(row["step"]), "elapsed": float(row["seconds"]), "return": float(row["return"])}
                with (run / "metrics.jsonl").open("a") as lines:
                    lines.write(json.dumps(point) + "\n")
        paths.sort(key=lambda path: not path.name.startswith(SRL))
        srl.plot(*[f"{path.name}={path}" for path in paths], out=out, title=title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("add", "table", "plot"))
    parser.add_argument("name", help="file in --results, without .csv")
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--library", default=SRL, help="label of the curve")
    parser.add_argument("--episodes", type=int, default=100, help="greedy episodes to play")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the files")
    parser.add_argument("--out", type=Path, help="figure to draw (png, pdf or svg)")
    parser.add_argument("--title", help="title of the figure (default: the name)")
    given = parser.parse_args()
    file = given.results / f"{given.name}.csv"
    for run in given.runs if given.what == "add" else ():
        rows = list(training_rows(run))
        if given.episodes:
            rows.append(
                {"kind": GREEDY, "step": rows[-1]["step"], "return": round(greedy_return(run, given.episodes), 2)}
            )
        seed = int(flat_options(RunDirectory(run).read_raw_config())["run.seed"])
        keep(file, given.library, seed, rows)
    if given.what == "plot":
        if given.out is None:
            parser.error("plot needs --out FILE")
        plot(read(file), given.title or given.name, given.out)
    print(table(read(file)))


if __name__ == "__main__":
    main()
