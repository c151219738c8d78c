"""The book's command, ``python -m attention_on_edges``."""

from attention_on_edges.cli.app import app

app()
