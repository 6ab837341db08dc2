"""Ways for messages and arrays to travel: in process, within a host, over TCP."""
