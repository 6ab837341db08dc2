"""Files of a run: its directory, checkpoints, metrics and journal."""

from pathlib import Path

ROOT = Path("runs")  # default directory of all runs, relative to the working directory
