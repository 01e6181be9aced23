"""What launcher and agents say to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_ring.launcher import frames

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
