"""Attention as message passing on a graph of tokens.

One module per chapter of *Attention on Edges*; ``book/index.md`` gives the order in which to read them.
"""

__version__ = "0.1.0"
