"""Advantages and value targets for trajectories, as pure functions of time-major arrays.

All of them read rows [T+1, B] of a `Trajectory`, compute in float64, and return float32 [T, B]. The row after the end
of an episode holds its last observation, so the value of row t+1 is the correct bootstrap for a truncation. No lane
acts in that row or in a row whose step never happened: sums stop there, as at row T, its contents do not affect the
result, and its own advantage is 0.
"""
