"""What trainers of all families share: the optimizer, data-parallel ranks, devices and normalizers."""
