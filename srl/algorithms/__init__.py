"""Algorithms: configs that build a policy and its matching trainer."""
