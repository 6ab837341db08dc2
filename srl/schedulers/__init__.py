"""Schedulers: run workers in one thread, in processes of one machine, or on several hosts."""
