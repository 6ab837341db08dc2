"""Components that all trainers share: the optimizer, data-parallel ranks, devices and normalizers."""
