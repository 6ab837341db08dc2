"""Output in the terminal: the live view, the final report, tables, charts and `srl doctor`."""
