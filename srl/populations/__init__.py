"""Populations of policies: pools of past versions and self-play against them."""
