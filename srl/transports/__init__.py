"""Transports for messages and arrays: within a process, between processes on a host, and between hosts."""
