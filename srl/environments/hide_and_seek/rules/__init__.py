"""The rules of the game: steps, rewards, tasks, statistics and stages."""
