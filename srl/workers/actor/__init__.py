"""The actor: steps environments and records samples."""
