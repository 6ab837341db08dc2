"""Parameters of policies, by version: one copy per host."""
