"""Models: in matrices, on graphs, adaptive, decoder-only; and those that chapters compare with."""
