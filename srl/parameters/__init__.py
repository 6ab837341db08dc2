"""Versioned policy parameters: one copy per host."""
