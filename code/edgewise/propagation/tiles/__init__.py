"""Dense tiles: cut, planned, laid out, executed."""
