"""Running a graph: training, checkpoints, resuming, Slurm jobs and sweeps."""
