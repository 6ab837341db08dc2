"""Data sets of recorded episodes, in the format of Minari."""
