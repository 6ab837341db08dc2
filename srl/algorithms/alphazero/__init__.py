"""AlphaZero: a search with the rules of a game, and a network that learns from what the search found."""
