"""Schedulers: run workers in one thread, as processes on one machine, or across several hosts."""
