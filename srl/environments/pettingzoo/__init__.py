"""PettingZoo environments as lanes, parallel and turn-based."""
