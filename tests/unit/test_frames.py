"""What launcher and agents say to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launch import frames

_FIELDS = st.dictionaries(
    st.text(max_size=8).filter(
        lambda name: name not in ("kind", "bytes", "payload")
    ),
    st.none() | st.integers() | st.text(max_size=20) | st.lists(st.integers()),
    max_size=4,
)
_FRAMES = st.lists(
    st.tuples(st.text(min_size=1, max_size=8), st.binary(), _FIELDS),
    max_size=6,
)


@given(_FRAMES, st.data())
def test_frames_come_out_as_they_went_in(sent, data):
    stream = b"".join(
        frames.encode(kind, payload, **fields) for kind, payload, fields in sent
    )
    reader = frames.FrameReader()
    got = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert [(f.kind, f.payload, dict(f.fields)) for f in got] == sent


@pytest.mark.parametrize(
    "data",
    [
        b"hello\n",
        b"[]\n",
        b"{}\n",
        b'{"kind": 1}\n',
        b'{"kind": "a", "bytes": -1}\n',
        b'{"kind": "a", "bytes": "7"}\n',
        b'{"kind": "a", "bytes": 1e30}\n',
        b'{"kind": "a", "bytes": 99999999999}\n',
        b"\xff\xfe\n",
    ],
)
def test_what_is_no_frame_is_an_error(data):
    with pytest.raises(frames.FrameError):
        frames.FrameReader().feed(data)


def test_line_without_end_is_an_error():
    reader = frames.FrameReader()
    with pytest.raises(frames.FrameError, match="without end"):
        for _ in range(20):
            reader.feed(b"x" * (1 << 20))


@given(st.binary(max_size=60))
def test_any_bytes_are_frames_or_an_error(data):
    try:
        frames.FrameReader().feed(data + b"\n")
    except frames.FrameError:
        return


class _Buffer(bytearray):
    """Counts the bytes that are copied within it, or out of it as its own."""

    copied = 0

    def partition(self, separator):
        self.copied += len(self)
        return super().partition(separator)

    def __getitem__(self, index):
        got = super().__getitem__(index)
        self.copied += len(got) if isinstance(index, slice) else 1
        return got

    def __delitem__(self, index):
        super().__delitem__(index)
        self.copied += len(self)


@pytest.mark.parametrize("payload", [b"", b"x" * 1000])
def test_what_waits_is_moved_once_for_each_read(payload):
    """However many frames a read has: a host's ranks may print many lines."""
    reader = frames.FrameReader()
    reader._waiting = _Buffer()
    one = frames.encode("output", payload, rank=7, stream="stdout")
    stream = memoryview(one * 2000)
    read = 16384
    count = 0
    for begin in range(0, len(stream), read):
        count += len(reader.feed(stream[begin : begin + read]))
    assert count == 2000
    # Less than a frame is left of each read.
    assert reader._waiting.copied <= len(one) * (len(stream) // read + 1)


def test_the_end_of_a_long_line_is_looked_for_once():
    looked_at = 0

    class Buffer(bytearray):
        def find(self, byte, begin):
            nonlocal looked_at
            looked_at += len(self) - begin
            return super().find(byte, begin)

    reader = frames.FrameReader()
    reader._waiting = Buffer()
    line = frames.encode("started", text="x" * 100_000)
    got = []
    for begin in range(0, len(line), 1000):
        got += reader.feed(line[begin : begin + 1000])
    assert [frame.kind for frame in got] == ["started"]
    assert looked_at == len(line)
