"""Sweeps: many runs in one directory, over seeds, grids of options, environments, and searches."""
