"""Encoders, which map observations to features."""
