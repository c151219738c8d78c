import gzip
import hashlib
import http.server
import io
import os
import re
import stat
import subprocess
import sys
import tarfile
import threading
import time
import tracemalloc
import warnings
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention_on_edges.data import corpora
from attention_on_edges.data.corpora import (
    CorpusError,
    File,
    annotated,
    download,
    fetch,
    multi30k,
    tatoeba,
    text,
    wmt14,
)
from attention_on_edges.data.corpora.archives import read_member, unpacked
from attention_on_edges.data.corpora.files import cache_folder, github_file
from places import BOOK
from workshop import corpus_of

DATA = bytes(range(256)) * 400  # 102,400 bytes
WRONG = DATA[::-1]


def digest(data):
    return hashlib.sha256(data).hexdigest()


@dataclass
class Page:
    """What a server has at one path, and how badly it serves it."""

    data: bytes
    status: int = 200
    cut: int | None = None  # close after so many bytes of each answer
    cuts: int = 10**9  # how often
    ranges: bool = True
    shift: int = 0  # how wrong the range is that it says it sends
    lengths: bool = True
    length: str | None = None  # what it says instead of the length
    pause: float = 0.0  # seconds between bytes
    asked: list = field(default_factory=list)
    sent: int = 0


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = self.server.pages.get(self.path) or Page(b"", status=404)
        wanted = self.headers.get("Range")
        page.asked.append(wanted)
        start = int(re.match(r"bytes=(\d+)-$", wanted)[1]) if wanted and page.ranges else 0
        status = page.status
        if status == 200 and start:
            status = 206 if start < len(page.data) else 416
        self.send_response(status)
        body = page.data[start:] if status < 400 else b""
        if status == 206:
            last = len(page.data) - 1
            self.send_header("Content-Range", f"bytes {start + page.shift}-{last}/{len(page.data)}")
        if page.lengths:
            self.send_header("Content-Length", page.length or str(len(body)))
        self.end_headers()
        if page.cut is not None and page.cuts > 0:
            page.cuts -= 1
            body = body[: page.cut]
        page.sent += len(body)
        if page.pause:
            with suppress(OSError):
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(page.pause)
            return
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.pages = {}
        running.address = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, request):
    if request.node.get_closest_marker("corpus") is None:
        monkeypatch.delenv("EDGEWISE_DATA", raising=False)
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def served(server, *pages, data=DATA):
    """A file whose addresses are pages /0, /1, ..."""
    server.pages = {f"/{i}": page for i, page in enumerate(pages)}
    return File("some/data.bin", digest(data), tuple(f"{server.address}/{i}" for i in range(len(pages))))


def given_file(monkeypatch, tmp_path, path, data):
    """Put a file into EDGEWISE_DATA."""
    place = tmp_path / "given" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "given"))
    return File(path, digest(data), ("http://127.0.0.1:9/none",))


def visible(folder):
    return sorted(p.name for p in folder.rglob("*") if p.is_file() and not p.name.startswith("."))


class TestWhereFilesLie:
    @pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "."])
    def test_a_path_stays_below_its_folder(self, path):
        with pytest.raises(ValueError, match="path must stay below its folder"):
            File(path, digest(b""), ("https://example.org/x",))

    def test_checksum_and_addresses_are_checked(self):
        with pytest.raises(ValueError, match="sha256 must be 64 hexadecimal digits, got 'abc'"):
            File("x", "abc", ("https://example.org/x",))
        for addresses in [(), ("file:///etc/passwd",), ("https://example.org/x", "ftp://example.org/x")]:
            with pytest.raises(ValueError, match="addresses must be"):
                File("x", digest(b""), addresses)

    def test_the_cache_is_where_the_environment_says(self, monkeypatch, tmp_path):
        assert cache_folder() == tmp_path / "cache"
        monkeypatch.delenv("EDGEWISE_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg" / "edgewise"
        for unusable in ("", "relative/folder"):
            monkeypatch.setenv("XDG_CACHE_HOME", unusable)
            assert cache_folder() == Path.home() / ".cache" / "edgewise"

    def test_a_file_at_hand_is_used_where_it_lies(self, monkeypatch, tmp_path, cache):
        file = given_file(monkeypatch, tmp_path, "a/b.txt", b"here")
        assert fetch(file) == tmp_path / "given" / "a" / "b.txt"
        assert not cache.exists()

    def test_a_wrong_file_at_hand_is_neither_used_nor_touched(self, monkeypatch, tmp_path, server):
        file = served(server, Page(DATA))
        given_file(monkeypatch, tmp_path, file.path, WRONG)
        place = tmp_path / "given" / file.path
        before = place.stat()
        with pytest.raises(
            CorpusError, match=f"{digest(WRONG)}, expected {digest(DATA)}; it is left as it is"
        ):
            fetch(file)
        assert place.read_bytes() == WRONG
        assert place.stat().st_mtime_ns == before.st_mtime_ns
        assert visible(tmp_path) == ["data.bin"]

    def test_a_file_that_changed_since_it_was_verified_is_verified_again(self, monkeypatch, tmp_path):
        file = given_file(monkeypatch, tmp_path, "a.txt", b"one")
        path = fetch(file)
        path.write_bytes(b"two")
        with pytest.raises(CorpusError, match="left as it is"):
            fetch(file)

    def test_edgewise_data_must_name_a_folder(self, monkeypatch, tmp_path):
        monkeypatch.setenv("EDGEWISE_DATA", str(tmp_path / "nowhere"))
        with pytest.raises(CorpusError, match="EDGEWISE_DATA must name a folder"):
            fetch(File("x", digest(b""), ("http://127.0.0.1:9/x",)))

    def test_errors_are_those_that_the_command_line_expects(self):
        assert issubclass(CorpusError, OSError)


class TestDownload:
    def test_it_is_verified_named_and_not_asked_for_again(self, server, cache):
        file = served(server, Page(DATA))
        assert fetch(file) == cache / "some" / "data.bin"
        assert fetch(file).read_bytes() == DATA
        assert visible(cache) == ["data.bin"]
        assert server.pages["/0"].asked == [None]

    def test_cut_off_it_goes_on_from_there(self, server, cache):
        page = Page(DATA, cut=30_000)
        assert fetch(served(server, page)).read_bytes() == DATA
        assert page.asked == [None, "bytes=30000-", "bytes=60000-", "bytes=90000-"]
        assert page.sent == len(DATA)

    def test_cut_off_often_it_arrives_as_long_as_every_try_brings_something(self, server):
        page = Page(DATA, cut=8_000)
        assert fetch(served(server, page)).read_bytes() == DATA
        assert len(page.asked) == 13

    @pytest.mark.parametrize("length", ["many", "-1", "1e6", "1 2"])
    def test_a_length_that_is_no_number_is_said_and_the_next_address_tried(self, server, length):
        file = served(server, Page(DATA, length=length), Page(DATA))
        assert fetch(file).read_bytes() == DATA
        with pytest.raises(CorpusError, match=f"sent the Content-Length '{length}'"):
            download.download(replace(file, addresses=file.addresses[:1]), Path(f"{fetch(file)}.other"))

    def test_a_server_that_drips_is_given_up(self, server, monkeypatch):
        monkeypatch.setattr(download, "PATIENCE", 0.3)
        few, other = DATA[:300], DATA[300:600]
        drips = Page(few, pause=0.01)
        assert fetch(served(server, drips, Page(few), data=few)).read_bytes() == few
        with pytest.raises(CorpusError, match=r"sent only [0-9]+ bytes a second"):
            fetch(served(server, drips, data=other))

    def test_without_ranges_it_begins_anew(self, server):
        page = Page(DATA, cut=30_000, cuts=2, ranges=False)
        assert fetch(served(server, page)).read_bytes() == DATA
        assert page.asked == [None, "bytes=30000-", "bytes=30000-"]

    def test_it_gives_up_where_no_try_brings_more_and_keeps_what_came(self, server, cache):
        page = Page(DATA, cut=30_000, ranges=False)
        with pytest.raises(CorpusError, match="cut off after 30,000 of 102,400 bytes; 30,000 bytes are kept"):
            fetch(served(server, page))
        assert len(page.asked) == 1 + download.TRIES
        assert visible(cache) == ["data.bin.part"]

    def test_a_later_call_goes_on_where_an_earlier_one_was_stopped(self, server, cache):
        page = Page(DATA)
        file = served(server, page)
        (cache / "some").mkdir(parents=True)
        (cache / "some" / "data.bin.part").write_bytes(DATA[:70_000])
        assert fetch(file).read_bytes() == DATA
        assert page.asked == ["bytes=70000-"]
        assert visible(cache) == ["data.bin"]

    def test_what_lacked_only_its_name_is_not_asked_for(self, server, cache):
        page = Page(DATA)
        file = served(server, page)
        (cache / "some").mkdir(parents=True)
        (cache / "some" / "data.bin.part").write_bytes(DATA)
        assert fetch(file).read_bytes() == DATA
        assert page.asked == []

    @pytest.mark.parametrize("beginning", [WRONG[:5000], WRONG + DATA, DATA + b"more"])
    def test_a_beginning_of_something_else_costs_one_more_try(self, server, cache, beginning):
        page = Page(DATA)
        file = served(server, page)
        (cache / "some").mkdir(parents=True)
        (cache / "some" / "data.bin.part").write_bytes(beginning)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert fetch(file).read_bytes() == DATA
        assert page.asked == [f"bytes={len(beginning)}-", None]

    def test_a_server_that_sends_another_range_is_not_believed(self, server):
        page = Page(DATA, cut=30_000, cuts=1, shift=7)
        assert fetch(served(server, page)).read_bytes() == DATA
        assert page.asked == [None, "bytes=30000-", None]

    def test_without_a_length_the_checksum_decides(self, server, cache):
        page = Page(DATA, lengths=False, cut=30_000, cuts=1)
        with pytest.warns(UserWarning, match="set aside"):
            assert fetch(served(server, page, Page(DATA))).read_bytes() == DATA

    @pytest.mark.parametrize(("status", "asked"), [(404, 1), (403, 1), (503, 3), (429, 3)])
    def test_where_one_address_fails_the_next_is_asked(self, server, status, asked):
        file = served(server, Page(b"", status=status), Page(DATA))
        assert fetch(file).read_bytes() == DATA
        assert len(server.pages["/0"].asked) == asked

    def test_what_one_address_began_another_goes_on_with(self, server):
        file = served(server, Page(DATA, cut=30_000, ranges=False), Page(DATA))
        assert fetch(file).read_bytes() == DATA
        assert server.pages["/1"].asked == ["bytes=30000-"]

    def test_a_wrong_checksum_is_set_aside_never_used_never_deleted(self, server, cache):
        file = served(server, Page(WRONG), Page(b"not found, but politely"))
        with pytest.raises(CorpusError) as caught:
            fetch(file)
        first, second = digest(WRONG), digest(b"not found, but politely")
        for part in (*file.addresses, first, second, "set aside as", str(cache)):
            assert part in str(caught.value)
        names = [f"data.bin.wrong-sha256-{d[:12]}" for d in sorted([first, second])]
        assert visible(cache) == names
        assert (cache / "some" / f"data.bin.wrong-sha256-{first[:12]}").read_bytes() == WRONG

    def test_a_wrong_one_then_a_right_one(self, server, cache):
        with pytest.warns(UserWarning, match="set aside as"):
            path = fetch(served(server, Page(WRONG), Page(DATA)))
        assert path.read_bytes() == DATA
        assert visible(cache) == ["data.bin", f"data.bin.wrong-sha256-{digest(WRONG)[:12]}"]

    def test_a_cached_file_that_went_bad_is_set_aside_and_fetched_anew(self, server, cache):
        file = served(server, Page(DATA))
        fetch(file).write_bytes(WRONG)
        with pytest.warns(UserWarning, match="set aside as data.bin.wrong-sha256"):
            assert fetch(file).read_bytes() == DATA
        assert visible(cache) == ["data.bin", f"data.bin.wrong-sha256-{digest(WRONG)[:12]}"]

    def test_offline_it_says_what_is_missing_and_where_to_put_it(self, server, cache):
        server.shutdown()
        server.server_close()
        file = File("some/data.bin", digest(DATA), (f"{server.address}/0",))
        with pytest.raises(CorpusError) as caught:
            fetch(file)
        message = str(caught.value)
        for part in ("some/data.bin", file.addresses[0], "no answer", str(cache / "some" / "data.bin")):
            assert part in message
        assert "EDGEWISE_DATA" in message
        assert visible(cache) == []

    def test_a_full_disk_is_no_network_error(self, server, cache, monkeypatch):
        def full(_):
            raise OSError(28, "No space left on device")

        file = served(server, Page(DATA), Page(DATA))
        monkeypatch.setattr(download.os, "fsync", full)
        with pytest.raises(CorpusError, match=r"cannot write .*data.bin.part.*No space left"):
            fetch(file)
        assert server.pages["/1"].asked == []

    def test_a_cache_that_cannot_be_written_to_is_named(self, server, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path / "file"))
        with pytest.raises(CorpusError, match=r"cannot write to .*set EDGEWISE_CACHE"):
            fetch(served(server, Page(DATA)))

    def test_many_at_once_download_once(self, server):
        file = served(server, Page(DATA))
        found = []
        threads = [threading.Thread(target=lambda: found.append(fetch(file).read_bytes())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [DATA] * 8
        assert server.pages["/0"].asked == [None]


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if isinstance(data, tuple):
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
                data = data[1].encode()
            zipped.writestr(info, data)
    return path


def make_tar(path, members):
    """Members are bytes, or a type of the tar format with where it leads."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, tuple):
                info.type, info.linkname = data
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


MAKERS = {"a.zip": make_zip, "a.tar": make_tar, "a.tar.gz": make_tar}

names = st.lists(st.text("abc", min_size=1, max_size=2), min_size=1, max_size=3).map("/".join)


class TestArchives:
    @pytest.mark.parametrize("name", MAKERS)
    @given(st.dictionaries(names, st.binary(max_size=40), min_size=1, max_size=4))
    def test_what_was_packed_comes_out(self, tmp_path_factory, name, members):
        archive = MAKERS[name](tmp_path_factory.mktemp("archive") / name, members.items())
        for member, data in members.items():
            assert read_member(archive, member) == data
        with pytest.raises(CorpusError, match=r"has no member 'd'; it has [abc]"):
            read_member(archive, "d")

    @pytest.mark.parametrize("length", [3, 200, 2000, -9, -1])
    def test_a_truncated_archive_is_named(self, tmp_path, length):
        data = os.urandom(4000)
        for name in MAKERS:
            archive = MAKERS[name](tmp_path / name, [("a", data)])
            if name != "a.zip" and length < 0:
                continue  # the end of a tar file is not read
            archive.write_bytes(archive.read_bytes()[:length])
            with pytest.raises(CorpusError, match=r"a.* is truncated or damaged") as caught:
                read_member(archive, "a")
            assert str(archive) in str(caught.value)

    def test_what_lacks_a_member_leaves_the_cache_as_it_was(self, monkeypatch, tmp_path, cache):
        data = make_tar(tmp_path / "x.tar.gz", [("b/c", b"2"), ("a", b"1")]).read_bytes()
        file = given_file(monkeypatch, tmp_path, "x.tar.gz", data)
        with pytest.raises(CorpusError, match="has no member 'd'; it has b/c, a"):
            unpacked(file, ["a", "d"])
        assert not [path for path in cache.rglob("a") if path.is_file()]
        assert [path.read_bytes() for path in unpacked(file, ["a"])] == [b"1"]

    def test_it_is_unpacked_into_the_cache_once(self, monkeypatch, tmp_path, cache):
        data = make_tar(tmp_path / "x.tar.gz", [("b/c", b"2"), ("a", b"1")]).read_bytes()
        file = given_file(monkeypatch, tmp_path, "x.tar.gz", data)
        first = unpacked(file, ["a", "b/c"])
        assert [p.read_bytes() for p in first] == [b"1", b"2"]
        assert all(cache in p.parents for p in first)
        fetch(file).unlink()
        assert unpacked(file, ["a", "b/c"]) == first


class TestText:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("  a\tb \n", "a b"),
            ("Qui\u202f?", "Qui ?"),
            ("Qui\u00a0?", "Qui ?"),
            ("Qui\u2009?\u00a0", "Qui ?"),
            ("soft\u00adhyphen zero\u200bwidth", "soft\u00adhyphen zero\u200bwidth"),
        ],
    )
    def test_white_space_of_any_kind_is_one_space(self, line, expected):
        assert text.clean(line) == expected

    @given(st.text())
    def test_clean_lines_stay_as_they_are(self, line):
        once = text.clean(line)
        assert text.clean(once) == once
        assert "".join(once.split()) == "".join(line.split())
        assert not re.search(r"\s\s|[^\S ]|^\s|\s$", once)

    @pytest.mark.parametrize("name", ["a.txt", "a.gz"])
    def test_lines_end_in_line_feeds_and_nothing_else(self, tmp_path, name):
        data = "one\r\ntwo\u2028still\x85two\x0band\n\nfour".encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name == "a.gz" else data)
        assert list(text.sentences(tmp_path / name)) == ["one", "two still two and", "", "four"]

    def test_what_is_not_utf8_is_named_with_its_line(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"good\nb\xe4d\n")
        with pytest.raises(CorpusError, match=r"a.txt is not UTF-8 in line 2"):
            list(text.sentences(tmp_path / "a.txt"))

    @pytest.mark.parametrize("length", [5, 30, -1])
    def test_a_truncated_gzip_is_named(self, tmp_path, length):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"line\n" * 9 + os.urandom(30).hex().encode())[:length])
        with pytest.raises(CorpusError, match=r"a.gz is truncated or damaged"):
            list(text.sentences(tmp_path / "a.gz"))

    def test_files_of_unequal_length_are_refused_before_the_first_pair(self, tmp_path):
        (tmp_path / "a").write_text("1\n2\n3\n")
        (tmp_path / "b").write_text("1\n2\n")
        with pytest.raises(CorpusError, match=r"a and .*b do not pair up: they have 3 and 2 lines"):
            next(text.pairs(tmp_path / "a", tmp_path / "b"))

    def test_pairs_come_from_the_disk_one_by_one(self, tmp_path):
        for name in "ab":
            (tmp_path / name).write_text("".join(f"{name} {i}\n" for i in range(60_000)))
        tracemalloc.start()
        count = sum(1 for _ in text.pairs(tmp_path / "a", tmp_path / "b"))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == 60_000
        assert peak < 1 << 18  # the files have 470 kB each, the pairs in memory 10 MB
        assert next(text.pairs(tmp_path / "a", tmp_path / "b")) == ("a 0", "b 0")


sources = st.lists(
    st.tuples(st.sampled_from(["Go!", "go", "Go?", "Run.", "Hi", "I'm in", "Im in", "?", "!"]), names)
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

    def test_the_seed_draws_another_split_in_another_order(self):
        pairs = [(f"word {i}", "mot") for i in range(50)]
        one, other = (tatoeba.split_by_source(pairs, {"test": 10}, seed) for seed in (0, 1))
        assert one["test"] != other["test"]
        assert one["train"] != sorted(one["train"])

    def test_what_differs_in_capitals_and_punctuation_alone_is_one_source(self):
        assert tatoeba.source_key("It's OK, Tom!") == tatoeba.source_key("its ok  tom")
        assert tatoeba.source_key("Go!") != tatoeba.source_key("Goes!")
        assert tatoeba.source_key("?") != tatoeba.source_key("!")

    @pytest.mark.parametrize("line", ["no tab", "a\tb\tc", "a\t", "\tb", "", "\u202f\tb"])
    def test_lines_of_another_form_are_named(self, line):
        with pytest.raises(CorpusError, match="x: line 2 must be source, tab and target"):
            tatoeba.tab_separated(["a\tb", line], "x")

    def test_all_translations_of_a_source_together(self):
        pairs = [("a", "1"), ("b", "2"), ("a", "3")]
        assert tatoeba.translations(pairs) == {"a": ["1", "3"], "b": ["2"]}

    def test_an_archive_like_tatoebas_is_read(self, monkeypatch, tmp_path):
        lines = "".join(f"Word {i}\u202f!\tMot {i}\u00a0!\nWord {i}!\tMots {i}\n" for i in range(30))
        members = [("__MACOSX/fra-eng/._fra.txt", b"\xff"), ("fra-eng/fra.txt", lines.encode())]
        data = make_zip(tmp_path / "x.zip", members).read_bytes()
        monkeypatch.setattr(tatoeba, "ARCHIVE", given_file(monkeypatch, tmp_path, "t/x.zip", data))
        found = corpora.load("tatoeba", valid=4, test=5, seed=3)
        assert {name: len(split) for name, split in found.splits.items()} == {
            "train": 42,
            "valid": 8,
            "test": 10,
        }
        assert {file.path: file.sha256 for file in found.files} == {"t/x.zip": digest(data)}
        assert "\u202f" not in str(found.splits)
        members[1] = ("fra-eng/fra.txt", lines.encode().replace(b"Mot 7", b"Mot \xff"))
        data = make_zip(tmp_path / "x.zip", members).read_bytes()
        monkeypatch.setattr(tatoeba, "ARCHIVE", given_file(monkeypatch, tmp_path, "t/x.zip", data))
        with pytest.raises(CorpusError, match=r"fra.txt is not UTF-8 in line 15"):
            corpora.load("tatoeba", valid=4, test=5)


def part_of(monkeypatch, tmp_path, name, english, german):
    members = [("t/x.en", english.encode()), ("t/x.de", german.encode())]
    data = make_tar(tmp_path / name, members).read_bytes()
    return wmt14.Part(given_file(monkeypatch, tmp_path, name, data), ("t/x.en", "t/x.de"))


class TestWmt14:
    def test_parts_are_streamed_one_after_the_other_without_empty_sides(self, monkeypatch, tmp_path):
        parts = [
            part_of(monkeypatch, tmp_path, "one.tar.gz", "a\n\nb\n", "A\nX\nB\n"),
            part_of(monkeypatch, tmp_path, "two.tar.gz", "c\nd\n", "C\n \n"),
        ]
        assert list(wmt14.stream(parts)) == [("a", "A"), ("b", "B"), ("c", "C")]
        assert list(wmt14.read_part(parts[1])) == [("c", "C"), ("d", "")]

    def test_a_part_that_does_not_pair_up_is_refused(self, monkeypatch, tmp_path):
        part = part_of(monkeypatch, tmp_path, "one.tar.gz", "a\nb\n", "A\n")
        with pytest.raises(CorpusError, match="do not pair up: they have 2 and 1 lines"):
            next(wmt14.stream([part]))

    def test_moses_escapes_are_undone_once(self):
        escaped = "&quot; a &apos; b &lt; c &gt; d &#91; e &#93; f &#124; g &amp; h &auml; &amp;lt;"
        assert wmt14.unescape(escaped) == "\" a ' b < c > d [ e ] f | g & h &auml; &lt;"

    def test_the_published_parts_name_two_addresses_and_their_members(self):
        for part in (*wmt14.TRAINING, wmt14.NEWSTEST2013):
            assert len({*part.archive.addresses}) == 2
            assert part.members[0].endswith(".en")
            assert part.members[1].endswith(".de")
        assert len({part.archive.path for part in wmt14.TRAINING}) == 3


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
        found = annotated.aligned("a b ||| c d e", "1-1 2-3 2p2")
        assert (found.source, found.target) == (("a", "b"), ("c", "d", "e"))
        assert found.sure == {(0, 0), (1, 2)}
        assert found.possible == {(0, 0), (1, 2), (1, 1)}

    @pytest.mark.parametrize(
        ("line", "links"),
        [("a b", "1-1"), ("a ||| b", "0-1"), ("a ||| b", "1-2"), ("a ||| b", "2p1"), ("a ||| b", "1:1")],
    )
    def test_links_that_lead_nowhere_are_named(self, line, links):
        with pytest.raises(CorpusError, match="hansards, line 7"):
            annotated.aligned(line, links, 7)

    def test_words_and_heads_of_a_parse(self):
        first, second = annotated.parses(CONLLU.splitlines(keepends=True))
        assert first.words == ("We", "'re", "off")
        assert first.heads == (2, 2, -1)
        assert first.relations == ("nsubj", "cop", "root")
        assert second.words == ("Yes",)

    @pytest.mark.parametrize(
        ("old", "new", "line"),
        [("\t3\tnsubj", "\t4\tnsubj", 7), ("\t3\tcop", "\t_\tcop", 4), ("3\toff", "4\toff", 6)],
    )
    def test_a_parse_of_another_form_is_named(self, old, new, line):
        with pytest.raises(CorpusError, match=f"x.conllu, line {line}"):
            list(annotated.parses(CONLLU.replace(old, new).splitlines(keepends=True), "x.conllu"))

    def test_an_unknown_split_is_named(self):
        with pytest.raises(ValueError, match="split must be one of 'train', 'valid', 'test'"):
            annotated.treebank("dev")


def test_an_unknown_corpus_is_named():
    with pytest.raises(ValueError, match="name must be one of 'captions', 'small', 'multi30k'"):
        corpora.load("wmt15")


def test_files_on_github_have_two_addresses():
    file = github_file("a/b", digest(b""), "owner/name", "c0ffee", "dir/b")
    assert file.addresses == (
        "https://raw.githubusercontent.com/owner/name/c0ffee/dir/b",
        "https://github.com/owner/name/raw/c0ffee/dir/b",
    )


def test_multi30k_reads_every_split_from_its_files(monkeypatch, tmp_path):
    files = {}
    for name in multi30k.CHECKSUMS:
        data = f" {name} 1\tx\u00a0\n{name} 2\n".encode()
        data = gzip.compress(data) if name.endswith(".gz") else data
        files[name] = given_file(monkeypatch, tmp_path, f"m/{name}", data)
    monkeypatch.setattr(multi30k, "FILES", files)
    found = corpora.load("multi30k")
    assert found.splits["test2016"] == [
        ("test_2016_flickr.en.gz 1 x", "test_2016_flickr.de.gz 1 x"),
        ("test_2016_flickr.en.gz 2", "test_2016_flickr.de.gz 2"),
    ]
    assert list(found.splits) == ["train", "valid", "test2016", "test2017"]
    assert list(found.tokenised) == ["valid", "test2016", "test2017"]
    assert found.tokenised["valid"][1] == ("tok/val.lc.norm.tok.en 2", "tok/val.lc.norm.tok.de 2")
    assert len(found.files) == 14


ALL_FILES = [
    *multi30k.FILES.values(),
    tatoeba.ARCHIVE,
    wmt14.NEWSTEST2014.archive,
    *(file for files in wmt14.SAMPLE.values() for file in files),
    annotated.HANSARDS_TEXT,
    annotated.HANSARDS_GOLD,
    *annotated.EWT.values(),
]


@pytest.mark.corpus
class TestRealFiles:
    @pytest.mark.parametrize("file", ALL_FILES, ids=lambda file: file.path)
    def test_each_has_its_checksum(self, file):
        assert fetch(file) == Path(os.environ["EDGEWISE_DATA"], file.path)

    def test_tatoeba_has_as_many_pairs_as_chapter_8_says(self):
        sizes = {name: f"{len(split):,}" for name, split in corpus_of("tatoeba").splits.items()}
        said = f"{sizes['train']} pairs for training, {sizes['test']} for the test"
        assert said in (BOOK / "08-translation.md").read_text(encoding="utf-8")

    def test_multi30k_splits_as_published(self):
        found = corpus_of("multi30k")
        sizes = {"train": 29000, "valid": 1014, "test2016": 1000, "test2017": 1000}
        assert {name: len(split) for name, split in found.splits.items()} == sizes
        del sizes["train"]
        assert {name: len(split) for name, split in found.tokenised.items()} == sizes

    def test_multi30k_test_sentences_are_not_trained_on(self):
        splits = corpus_of("multi30k").splits
        shared = {
            name: [
                len({p[side] for p in splits[name]} & {p[side] for p in splits["train"]}) for side in (0, 1)
            ]
            for name in ("valid", "test2016", "test2017")
        }
        assert shared["test2016"] == [0, 0]
        assert max(shared["valid"]) == 1
        assert shared["test2017"] == [0, 2]

    def test_multi30k_tokenised_lines_are_those_of_the_raw_text(self):
        found = corpus_of("multi30k")
        for name, tokenised in found.tokenised.items():
            for raw, tokens in zip(found.splits[name], tokenised, strict=True):
                for a, b in zip(raw, tokens, strict=True):
                    letters = [re.sub(r"&\w+;|\W|_", "", side.lower()) for side in (a, b)]
                    assert letters[0] == letters[1]

    def test_tatoeba_has_all_pairs_once_and_no_source_twice(self):
        splits = corpus_of("tatoeba").splits
        assert sum(map(len, splits.values())) == 166_979  # 151 lines differ from others in white space alone
        keys = [{tatoeba.source_key(s) for s, _ in split} for split in splits.values()]
        assert len(keys[1]) == len(keys[2]) == 2000
        assert len(set.union(*keys)) == sum(map(len, keys))
        lengths = [len(source) for source, _ in splits["train"]]
        thousand = [sum(lengths[i : i + 1000]) / 1000 for i in (0, len(lengths) - 1000)]
        assert abs(thousand[0] - thousand[1]) < 3  # the file itself is sorted by length

    def test_wmt14_sample_is_unescaped(self):
        splits = corpus_of("wmt14").splits
        assert {n: len(s) for n, s in splits.items()} == {"train": 10_000, "valid": 3000, "test": 3003}
        assert not re.search(r"&(quot|apos|amp|lt|gt|#\d+);", str(splits))

    @pytest.mark.parametrize("name", ["multi30k", "tatoeba", "wmt14"])
    def test_every_sentence_is_clean_and_says_something(self, name):
        found = corpus_of(name)
        for split in (*found.splits.values(), *found.tokenised.values()):
            for pair in split:
                for side in pair:
                    assert side
                    assert side == text.clean(side)
                    assert not re.search("[\u00a0\u202f\u2009\t]", side)

    def test_hansards_has_the_published_number_of_links(self):
        found = annotated.hansards()
        assert len(found) == 447
        assert sum(len(pair.sure) for pair in found) == 4038
        assert sum(len(pair.possible - pair.sure) for pair in found) == 13_400

    @pytest.mark.parametrize(("split", "count"), [("train", 12_544), ("valid", 2001), ("test", 2077)])
    def test_every_parse_is_a_tree(self, split, count):
        found = annotated.treebank(split)
        assert len(found) == count
        for parse in found:
            assert parse.heads.count(-1) == 1
            for place in range(len(parse.words)):
                steps = 0
                while place >= 0:
                    place = parse.heads[place]
                    steps += 1
                    assert steps <= len(parse.words)


@pytest.mark.parametrize(
    "processes",
    [pytest.param([], id="alone"), pytest.param(["-n", "1"], id="other", marks=pytest.mark.nightly)],
)
def test_without_corpora_their_tests_are_deselected_by_a_printed_line(tmp_path, processes):
    tests = Path(__file__).parents[1]
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text("utf-8"))
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    corpus\n    cuda\n")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n\n@pytest.mark.corpus\ndef test_one():\n    assert 0\n\ndef test_two():\n    pass\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "EDGEWISE_DATA"}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, tmp_path],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "deselected 1 tests marked 'corpus': EDGEWISE_DATA names no folder of corpora" in result.stdout
    assert ("1 passed in" if processes else "1 passed, 1 deselected in") in result.stdout
