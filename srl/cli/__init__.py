"""The command line, one module per topic."""
