"""Finished runs: loading, evaluating, recording, plotting, exporting and comparing their policies."""
