"""Recipes: options that work well for a family of environments."""
