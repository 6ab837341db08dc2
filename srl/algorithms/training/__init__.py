"""What trainers of every family share: the optimizer, data-parallel ranks, devices, normalizers and schedules."""
