"""``python -m attention_on_edges ask``: the next word of a text, before and after words are silenced."""

from typing import Annotated

import torch
import typer

from attention_on_edges.cli.one_line_errors import one_line_errors, write
from attention_on_edges.corpora.smollm import language_model
from attention_on_edges.models.next_word import NextWord


def ask(
    text: Annotated[str, typer.Argument(help="What is to be continued.")],
    silence: Annotated[
        list[str] | None, typer.Option(help="A word that no later word attends to, each time it occurs.")
    ] = None,
) -> None:
    """Print the five likeliest next words of a text, by a language model; and without some of its words.

    The model, SmolLM2-135M-Instruct (Apache-2.0), is downloaded once, 93 MB.
    """
    with one_line_errors():
        read = NextWord(*language_model(), text)
        silenced = [place for word in silence or [] for places in read.places(word) for place in places]
        cuts = [read.without([])] + ([read.without(read.silenced(silenced))] if silenced else [])
        columns = [read.likeliest(row) for row in read.log_probs(torch.stack(cuts))]
        heads = ["all words", "without " + ", ".join(silence or [])][: len(cuts)]
        write("".join(f"{head:24}" for head in heads).rstrip())
        for found in zip(*columns, strict=True):
            write(
                "".join(
                    f"{word.strip() or repr(word):16}{chance:4.0%}    " for word, chance in found
                ).rstrip()
            )
