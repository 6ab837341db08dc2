"""Results of runs: loading, evaluating, recording, exporting and comparing policies, and plotting learning curves."""
