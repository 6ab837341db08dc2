"""Which spaces the networks support. Needs no torch, so that the command line can ask quickly."""
