"""The options of a run, and how the command line names them."""
