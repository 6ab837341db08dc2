"""What computes: actors, policies, trainers, and the process around each of them."""
