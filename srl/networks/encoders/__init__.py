"""Encoders: from observations to features."""
