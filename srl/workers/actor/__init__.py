"""The actor: steps environments and records what happens."""
