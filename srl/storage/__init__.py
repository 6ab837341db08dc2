"""What a run leaves on disk: its directory, checkpoints and metrics."""

from pathlib import Path

ROOT = Path("runs")
"""Where runs lie unless somebody says otherwise: here, below the directory that a command is given in."""
