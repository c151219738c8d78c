import gzip
import hashlib
import http.server
import os
import tarfile
import threading
import zipfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges import corpora
from attention_on_edges.corpora import File, fetch, gold_annotations, graph_data, tatoeba, text, wmt14
from attention_on_edges.sparse_graphs import dependency_tree
from book_support import PLAIN, corpus_of, noisy
from edgewise.validation import InputError
from paths import BOOK


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def server(tmp_path):
    """Serves ``a/good`` and ``a/bad``; yields its address and the paths that were asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_request(self, *_):
            asked.append(self.path)

    folder = tmp_path / "served"
    folder.mkdir()
    for name in ("good", "bad"):
        (folder / name).write_bytes(name.encode() * 1000)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}", asked
        found.shutdown()


def file_at(*addresses):
    return File("a/x.bin", hashlib.sha256(b"good" * 1000).hexdigest(), addresses)


class TestFetch:
    def test_the_first_address_that_serves_the_file_is_used_once(self, server, cache):
        address, asked = server
        file = file_at(f"{address}/missing", f"{address}/bad", f"{address}/good", f"{address}/never")
        for _ in range(2):
            assert fetch(file) == cache / "a" / "x.bin"
            assert fetch(file).read_bytes() == b"good" * 1000
        assert asked == ["/missing", "/bad", "/good"]

    def test_a_damaged_copy_is_downloaded_again(self, server, cache):
        file = file_at(f"{server[0]}/good")
        fetch(file).write_bytes(b"goo")
        assert fetch(file).read_bytes() == b"good" * 1000

    def test_what_cannot_be_had_is_one_error_that_says_what_to_do(self, server, cache):
        with pytest.raises(corpora.CorpusError, match=r"cannot download a/x\.bin: .* save .*/bad as .*bin"):
            fetch(file_at(f"{server[0]}/bad", f"{server[0]}/missing"))
        assert not (cache / "a" / "x.bin").exists()

    def test_the_users_folder_comes_first_and_stays_as_it_is(self, server, cache, monkeypatch, tmp_path):
        given_ = tmp_path / "mine" / "a" / "x.bin"
        given_.parent.mkdir(parents=True)
        monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "mine"))
        file = file_at(f"{server[0]}/good")
        given_.write_bytes(b"good" * 1000)
        assert fetch(file) == given_
        given_.write_bytes(b"bad")
        with pytest.raises(corpora.CorpusError, match="another version"):
            fetch(file)
        assert given_.read_bytes() == b"bad"
        assert server[1] == []


class TestText:
    @given(st.sampled_from(PLAIN), st.randoms(use_true_random=False))
    def test_a_typed_text_is_read_as_training_text_is_written(self, plain, rng):
        assert text.as_trained(noisy(plain, rng)) == plain == text.as_trained(plain)

    @pytest.mark.parametrize(("name", "member"), [("a", ""), ("a.gz", ""), ("a.zip", "b"), ("a.tgz", "b")])
    def test_lines_end_in_line_feeds_and_nothing_else(self, tmp_path, name, member):
        data, path = "one\r\ntwo\u2028still\x85two\x0band\n\nfour".encode(), tmp_path / name
        (tmp_path / "plain").write_bytes(data)
        if name == "a.zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.write(tmp_path / "plain", member)
        elif name == "a.tgz":
            with tarfile.open(path, "w:gz") as archive:
                archive.add(tmp_path / "plain", member)
        else:
            path.write_bytes(gzip.compress(data) if name == "a.gz" else data)
        found = list(text.lines(path, member))
        assert "".join(found).encode() == data
        assert list(map(text.clean, found)) == ["one", "two still two and", "", "four"]
        assert text.clean("soft\u00ad\u200b\u2009?\u202f") == "soft\u00ad\u200b ?"  # training text stays


sources = st.lists(
    st.tuples(
        st.sampled_from(["Go!", "go", "Go?", "Run.", "Hi", "I'm in", "Im in", "?", "!"]),
        st.sampled_from("abc"),
    )
)


class TestSplits:
    @given(sources, st.integers(0, 2), st.integers(0, 2), st.integers(0, 3))
    def test_every_pair_is_in_one_split_and_no_source_in_two(self, pairs, valid, test, seed):
        sizes = {"valid": valid, "test": test}
        if valid + test >= len({tatoeba.source_key(s) for s, _ in pairs}):
            with pytest.raises(ValueError, match="to train on"):
                tatoeba.split_by_source(pairs, sizes, seed)
            return
        splits = tatoeba.split_by_source(pairs, sizes, seed)
        assert sorted(p for split in splits.values() for p in split) == sorted(set(pairs))
        keys = {name: {tatoeba.source_key(s) for s, _ in split} for name, split in splits.items()}
        assert keys["train"]
        assert (len(keys["valid"]), len(keys["test"])) == (valid, test)
        assert sum(map(len, keys.values())) == len(set.union(*keys.values()))
        assert tatoeba.split_by_source(pairs[::-1], sizes, seed) == splits

    def test_what_differs_in_capitals_and_punctuation_alone_is_one_source(self):
        assert tatoeba.source_key("It's OK, Tom!") == tatoeba.source_key("its ok  tom")
        assert tatoeba.source_key("Go!") != tatoeba.source_key("Goes!")
        assert tatoeba.source_key("?") != tatoeba.source_key("!")


def test_all_of_wmt14_is_read_part_by_part_from_its_archives(monkeypatch, cache, tmp_path):
    def part(name, *texts):
        path = tmp_path / "mine" / name
        path.parent.mkdir(exist_ok=True)
        with tarfile.open(path, "w:gz") as archive:
            for side, lines in zip(wmt14.SIDES, texts, strict=True):
                (tmp_path / "plain").write_text(lines)
                archive.add(tmp_path / "plain", side)
        return wmt14.Part(File(name, hashlib.sha256(path.read_bytes()).hexdigest(), ()), wmt14.SIDES)

    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "mine"))
    monkeypatch.setattr(wmt14, "TRAINING", [part("one", "a\n\nb\n", "A\nX\nB\n"), part("two", "c\n", "C\n")])
    monkeypatch.setattr(wmt14, "NEWSTEST2013", part("three", "d\n", "D\n"))
    monkeypatch.setattr(wmt14, "NEWSTEST2014", part("four", "e\n", "E\n"))
    found = corpora.load("wmt14-full")
    for _ in range(2):
        assert list(found.splits["train"]) == [("a", "A"), ("", "X"), ("b", "B"), ("c", "C")]
    assert (found.splits["valid"], found.splits["test"]) == ([("d", "D")], [("e", "E")])


CONLLU = """# text = We're off.
1-2\tWe're\t_\t_\t_\t_\t_\t_\t_\t_
1\tWe\twe\tPRON\tPRP\t_\t3\tnsubj\t_\t_
2\t're\tbe\tAUX\tVBP\t_\t3\tcop\t_\t_
2.1\tquite\t_\t_\t_\t_\t_\t_\t_\t_
3\toff\toff\tADV\tRB\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_

"""


class TestGold:
    def test_links_are_counted_from_zero_and_sure_ones_are_possible(self):
        found = gold_annotations.aligned("a b ||| c d e", "1-1 2-3 2p2")
        assert (found.source, found.target) == (("a", "b"), ("c", "d", "e"))
        assert found.sure == {(0, 0), (1, 2)}
        assert found.possible == {(0, 0), (1, 2), (1, 1)}

    def test_words_and_heads_of_a_parse(self):
        first, second = gold_annotations.parses(CONLLU.splitlines(keepends=True))
        assert first.words == ("We", "'re", "off")
        assert first.heads == (2, 2, -1)
        assert first.relations == ("nsubj", "cop", "root")
        assert second.words == ("Yes",)


def test_a_molecule_is_a_graph_and_what_is_none_is_named():
    ethanol = graph_data.read_molecule("CCO", 1.1)
    assert ethanol.atoms == ((6, 0, 3, 0, 1), (6, 0, 2, 0, 2), (8, 0, 1, 0, 1))
    assert ethanol.bonds == ((0, 1, 1), (1, 2, 1))
    with pytest.raises(InputError, match=r"can parse, got 'C1CC\('"):
        graph_data.read_molecule("C1CC(", 0.0)


ALL_FILES = [
    graph_data.ESOL,
    graph_data.CORA,
    *corpora.multi30k.FILES.values(),
    tatoeba.ARCHIVE,
    wmt14.NEWSTEST2014.archive,
    gold_annotations.HANSARDS_TEXT,
    gold_annotations.HANSARDS_GOLD,
    *gold_annotations.EWT.values(),
]


@pytest.mark.corpus
class TestRealFiles:
    @pytest.mark.parametrize("file", ALL_FILES, ids=lambda file: file.path)
    def test_each_has_its_checksum(self, file):
        assert fetch(file) == Path(os.environ["EDGEWISE_DATA"], file.path)

    def test_tatoeba_has_as_many_pairs_as_published_and_as_chapter_8_says(self):
        splits = corpus_of("tatoeba").splits
        assert sum(map(len, splits.values())) == 166_979  # 151 lines differ from others in white space alone
        said = f"has read {len(splits['train']):,} pairs"
        assert said in (BOOK / "08-translation.md").read_text(encoding="utf-8")

    def test_multi30k_splits_as_published(self):
        found = corpus_of("multi30k")
        sizes = {"train": 29000, "valid": 1014, "test2016": 1000, "test2017": 1000}
        assert {name: len(split) for name, split in found.splits.items()} == sizes
        del sizes["train"]
        assert {name: len(split) for name, split in found.tokenised.items()} == sizes

    def test_molecules_and_citations_are_as_published(self):
        found = graph_data.molecules()
        assert len(found) == 1128
        assert max(len(one.atoms) for one in found) == 55
        pairs, papers = graph_data.citations()
        assert (len(pairs), papers) == (5429, 2708)

    def test_hansards_has_the_published_number_of_links(self):
        found = gold_annotations.hansards()
        assert len(found) == 447
        assert sum(len(pair.sure) for pair in found) == 4038
        assert sum(len(pair.possible - pair.sure) for pair in found) == 13_400

    @pytest.mark.parametrize(("split", "count"), [("train", 12_544), ("valid", 2001), ("test", 2077)])
    def test_every_parse_is_a_tree(self, split, count):
        found = gold_annotations.treebank(split)
        assert len(found) == count
        for parse in found:
            assert dependency_tree(parse.heads).num_edges == 3 * len(parse.words) - 2
