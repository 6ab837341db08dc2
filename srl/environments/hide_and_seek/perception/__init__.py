"""Perception of agents: lines of sight, lidar and observations."""
