"""Every table of speed and memory: interleaved runs, medians, ratios."""
