"""Recipes: functions that return an Experiment; the one place where workers and algorithms meet."""
