"""The name service, which maps names of endpoints to addresses."""
