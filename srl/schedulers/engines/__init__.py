"""Engines: start a run's agents on its hosts (manually, through Slurm, or through Ray)."""
