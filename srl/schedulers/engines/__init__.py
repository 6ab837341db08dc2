"""Engines: what starts agents on hosts (manually, Slurm, Ray)."""
