"""The data of experiments: toy tasks, and text."""

def digest_of(data: TranslationDataset) -> str:
    """Return the sha256 of all pairs, in their order."""
    return hashlib.sha256(json.dumps(data.splits).encode()).hexdigest()
