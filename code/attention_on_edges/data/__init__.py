"""Chapters 7 and 8: toy tasks, corpora, tokenizers, metrics of text, and text on disk."""
