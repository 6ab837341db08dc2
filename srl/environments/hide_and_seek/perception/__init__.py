"""What agents perceive: lines of sight, lidar and observations."""
