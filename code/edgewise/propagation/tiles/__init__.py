"""DenseCall tiles: cut, planned, laid out, executed."""
