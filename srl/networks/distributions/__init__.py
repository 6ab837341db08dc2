"""Action distributions."""
