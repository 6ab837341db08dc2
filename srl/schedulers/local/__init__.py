"""The scheduler for runs on one host: one process per worker."""
