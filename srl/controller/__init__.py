"""Control of one run: starting, supervising, scaling and stopping its workers; its status and its control socket."""
