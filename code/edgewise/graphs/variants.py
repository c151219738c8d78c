"""Chapter 13: what practice calls attention variants, as graphs."""

from edgewise.graphs.attention_graph import AttentionGraph
from edgewise.graphs.bigbird import global_tokens
from edgewise.graphs.constructors import Sizes, causal, per_token_of, window
from edgewise.validation import check_count


def prefix_lm(sizes: Sizes, prefixes: Sizes, left: int | None = None) -> AttentionGraph:
    """A causal graph, or a causal window, and every token attends to the whole prefix of its text.

    The first tokens of a text, its prefix, thus all attend to each other. Dong et al. 2019 and Raffel et al.
    2020, fig. 4. A window that also limits how far the prefix is attended to is
    ``prefix_lm(sizes, prefixes) & window(sizes, left, right)``.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each text, as in :func:`edgewise.complete`.
    prefixes : int or sequence of int
        How many of them are its prefix: one number for all texts or one for each.
    left : int, optional
        Tokens before it that a token attends to besides the prefix; without it, to all.

    Raises
    ------
    TypeError, ValueError
        If a count is not an integer or negative, there are not as many prefixes as texts, or one is longer
        than its text.
    """
    start, stop, prefix = per_token_of(sizes, ("prefixes", prefixes, 0))
    if bool((start + prefix > stop).any()):
        raise ValueError(f"each text needs a prefix within it, got sizes {sizes} and prefixes {prefixes}")
    known = AttentionGraph._of(len(start), None, (start, start + prefix))
    return known | (causal(sizes) if left is None else window(sizes, left, 0))


def sinks(sizes: Sizes, width: int, count: Sizes) -> AttentionGraph:
    """A causal window of ``width`` tokens, itself included, and the first ``count`` tokens of the text.

    Xiao et al. 2024: without these sinks a model that was trained on whole texts fails on a window.

    Parameters
    ----------
    sizes : int, sequence of int or Tensor
        Tokens of each text, as in :func:`edgewise.complete`.
    width : int
        At least 1.
    count : int or sequence of int
        One number for all texts or one for each.

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer or too small, or there are not as many counts as texts.
    """
    return window(sizes, check_count("width", width, 1) - 1, 0) | global_tokens(sizes, count, causal=True)
