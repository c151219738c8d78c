"""Attention as message passing on a graph of tokens.

One module a chapter of *Attention on Edges*; see ``book/index.md`` for the order in which to read them.
"""

__version__ = "0.1.0"
