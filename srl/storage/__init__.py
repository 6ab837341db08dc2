"""Files of a run: its directory, checkpoints, metrics and journal."""

from pathlib import Path

ROOT = Path("runs")  # default directory of runs, relative to the directory where a command is run
