"""Chapters 2, 3, 6 and 11: whole models: dense, graph networks, the graph Transformer, the Universal one."""
