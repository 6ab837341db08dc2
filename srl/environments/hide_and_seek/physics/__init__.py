"""The simulated worlds: scenes, walls, layouts and the manipulation of objects."""
