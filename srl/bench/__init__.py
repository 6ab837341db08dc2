"""Benchmarks for `srl bench`: throughput, actor overhead, environment ring and controller."""
