"""One run: launch, watch, restart, resize, stop."""
