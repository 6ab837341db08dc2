"""`srl bench`: measurements of throughput, of actors, of the environment ring and of the controller."""
