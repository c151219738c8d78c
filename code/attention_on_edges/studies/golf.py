"""Edge golf on the home page: its sentences, and par."""

from attention_on_edges.runs.artifacts import Artifact
from attention_on_edges.runs.running import load_translator
from attention_on_edges.studies.cut_translation import CutTranslation, prune, refine
from attention_on_edges.studies.results import Rows

ROUNDS = 40

HOLES = {
    "tatoeba": (
        "The cat is sleeping on my bed.",
        "Where is the station?",
        "I love you.",
        "Can you help me tomorrow?",
        "We have been waiting for two hours.",
        "My brother is older than I am.",
        "She is reading a book.",
        "It is raining today.",
        "Do you speak French?",
        "I would like a cup of coffee.",
        "He works in a big office.",
        "They live near the river.",
        "I have never seen him before.",
        "You must not open the window.",
        "How much does this cost?",
    ),
    "multi30k": (
        "Two dogs run through the snow.",
        "A man in a blue shirt is standing on a ladder cleaning a window.",
        "A little girl climbs into a wooden playhouse.",
        "A woman is reading a book on a bench.",
        "A boy in a red jacket jumps over a puddle.",
        "An old man sits on a bench and feeds the birds.",
        "A young woman rides her bike through the city.",
        "Two men are playing guitar on a stage.",
        "A brown dog catches a ball in the water.",
        "A group of people is waiting for the bus.",
        "A girl in a yellow dress is eating ice cream.",
        "Several people are skiing down a mountain.",
        "A man and a woman are dancing in the street.",
        "A dog is sleeping under a table.",
        "Three boys are sitting on a wall.",
        "A child in a green coat is playing with a ball.",
    ),
}
"""Sentences, for each model."""


def measure_golf(artifact: Artifact) -> Rows:
    """Return par for each sentence: the edges left by pruning, refined ``ROUNDS`` times.

    Returns
    -------
    list of dict
        Text and translation, the number of ``edges`` of the whole graph, and the numbers of those ``kept``.
    """
    translator = load_translator(artifact)
    rows: Rows = []
    for text in HOLES[artifact.name]:
        sentence = CutTranslation(translator.model, translator.encode(text))
        kept = refine(sentence, prune(sentence, sentence.weights.argsort()), ROUNDS)
        said = translator.splitter.join(translator.vocabulary.decode(list(sentence.ids)))
        found = {"edges": len(kept), "kept": kept.nonzero()[:, 0].tolist()}
        rows.append({"text": text, "translation": said} | found)
    return rows
