"""Games and tasks with a simulator: their rules as functions of arrays, and lanes that play them."""
