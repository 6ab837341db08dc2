"""Experiments: options, recipes, worker graphs and sessions. Here workers and algorithms meet."""
