import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launch.output import LineSplitter, Sink, Tail
from keras_ring.launch.text_format import prefix


def _split(*chunks: bytes) -> list[bytes]:
    splitter = LineSplitter()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines + splitter.finish()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab", b"c"]),
        ([b"a\n\nb\n"], [b"a", b"", b"b"]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"\xff\xfe\n"], [b"\xff\xfe"]),
        ([b"10%\r", b"20%\r"], [b"10%", b"20%"]),
        ([b"10%\r20%\r30%\n"], [b"30%"]),
        ([b"10%\r\r\n"], [b"10%"]),
        ([b""], []),
    ],
)
def test_lines(chunks, lines):
    assert _split(*chunks) == lines


@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\r", b""))))
def test_where_reads_are_cut_does_not_matter(chunks):
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    assert _split(*chunks) == (expected if expected[-1] else expected[:-1])


def test_a_line_without_end_is_not_kept_for_ever():
    splitter = LineSplitter()
    size = 1_000_000
    lines = splitter.feed(b"x" * size)
    assert sum(map(len, lines)) > size - 70_000
    assert sum(map(len, lines + splitter.finish())) == size


def test_tail_keeps_the_last_lines_short():
    tail = Tail()
    for number in range(50):
        tail.add(b"%d \xff" % number + b"x" * 10_000)
    text = tail.text()
    assert len(text) == 20
    assert text[0].startswith("30 \\xff")
    assert max(map(len, text)) < 500


def test_prefix():
    assert prefix([2], timestamp=False) == b"[2] "
    assert prefix({0, 2, 3, 4}, timestamp=False) == b"[0, 2-4] "
    stamp = rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[2\] "
    assert re.fullmatch(stamp, prefix([2], timestamp=True))


def test_sink_gives_a_pipe_no_more_than_it_takes_at_once():
    readable, writable = os.pipe()
    sink = Sink(writable)
    assert not sink.always_ready
    sink.put(b"line\n" * 2000)
    sink.write_some()
    got = os.read(readable, 100_000)
    assert len(got) <= 4096 and got.endswith(b"\n")
    os.close(readable)
    os.close(writable)


def test_sink_knows_a_file(tmp_path):
    with open(tmp_path / "file", "wb") as file:
        sink = Sink(file.fileno())
        assert sink.always_ready
        sink.put(b"line\n" * 2000)
        assert sink.write()
    assert (tmp_path / "file").read_bytes() == b"line\n" * 2000
