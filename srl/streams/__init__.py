"""Streams between workers: push streams for samples, request streams for inference."""
