"""Checks of whole runs: training an algorithm on probes, and injecting faults into a running job."""
