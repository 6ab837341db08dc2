"""Transports for messages and arrays: within a process, between processes of a host, between hosts."""
