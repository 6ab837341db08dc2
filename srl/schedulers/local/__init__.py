"""The scheduler of runs on one host: a process for each worker."""
