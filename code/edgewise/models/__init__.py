"""Chapters 2, 3, 6, 11 and 13: dense models, graph networks, Transformers, decoder-only models."""
