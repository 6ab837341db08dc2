"""The name service: addresses of endpoints by name."""
