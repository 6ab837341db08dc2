"""Versions of policies, one copy per host."""
