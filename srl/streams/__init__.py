"""Edges of the graph: push streams for samples, request streams for inference."""
