"""Algorithms: configs that build matching policies and trainers."""
