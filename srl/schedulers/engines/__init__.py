"""Engines: start the agents of a run on its hosts (manually, with Slurm, with Ray)."""
