"""A simulated cluster: real workers, streams and controller on a virtual clock and a controllable network."""
