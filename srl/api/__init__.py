"""Every contract between the packages of SRL, and nothing else. It needs numpy and msgspec."""
