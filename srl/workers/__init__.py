"""Workers (actors, policy workers, trainers, evaluators), and the process that runs each of them."""
