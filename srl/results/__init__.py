"""What is done with a finished run: load, evaluate, record, plot, export and compare its policies."""
