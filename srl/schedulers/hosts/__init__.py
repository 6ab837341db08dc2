"""The scheduler of runs that span several hosts."""
