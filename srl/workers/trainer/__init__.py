"""The trainer: gathers batches, learns from them and publishes parameters."""
