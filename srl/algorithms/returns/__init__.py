"""Advantages and value targets of trajectories: pure functions on time-major arrays.

All of them read rows [T+1, B] of a `Trajectory`, compute in float64, and return float32 [T, B]. The row after the end
of an episode holds its last observation, so the value of row t+1 is the right bootstrap of a truncation. No lane acts
in that row, nor in a row whose step never happened: sums stop there, as they do at row T, and the contents of such a
row do not affect the result; its own advantage is 0.
"""
