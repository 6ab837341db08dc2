"""The checks behind `srl check-env`."""
