"""A simulated cluster: real workers, streams and controller, with a virtual clock and a network that a test controls."""
