"""Whatever is in a file or an argument, only what is documented comes out."""

import json
import random
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_ring.keras.checkpoint import checkpoint_files as files
from keras_ring.launch.hosts import Host, parse_hosts
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import error_file

MUTATIONS = 3000
DEEP = b"[" * 200_000
HUGE = b'{"time": 1' + b"0" * 400 + b', "type": "E", "message": ""}'

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def mutated(content, seed):
    """Returns `content` with some bytes changed, cut out or repeated."""
    rng = random.Random(seed)
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end]
            case 3:
                data[at:at] = rng.choice(
                    (b"{}", b"null", b'"', b"-", b"1e999", b"9" * 30, b"\xff")
                )
    return bytes(data)


def names(text):
    """Returns the strategy of texts that have not only `text`'s letters."""
    return st.text(max_size=20) | st.sampled_from(text)


# --- Manifests ---


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    return files.write(
        directory,
        7,
        {"a.bin": lambda file: file.write(b"content")},
        {"ranks": 2, "progress": {"epoch": 3}},
    )


@pytest.fixture
def manifest(checkpoint):
    path = checkpoint.path / files.MANIFEST
    content = path.read_bytes()
    yield path
    path.write_bytes(content)


def read(checkpoint):
    """Reads the manifest; True if it is whole."""
    try:
        found = files.read_manifest(checkpoint)
    except files.Damaged as error:
        assert str(checkpoint.path) in str(error)
        return False
    assert found["format"] == files.FORMAT
    assert found["step"] == checkpoint.step
    for name in found["files"]:
        assert (checkpoint.path / name).parent == checkpoint.path
    return True


def test_mutated_manifests(checkpoint, manifest):
    content = manifest.read_bytes()
    assert read(checkpoint)
    for seed in range(MUTATIONS):
        manifest.write_bytes(mutated(content, seed))
        read(checkpoint)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"7", b"null", DEEP, b'"files"', b"{}" + b" " * 99],
)
def test_what_is_no_manifest(checkpoint, manifest, content):
    manifest.write_bytes(content)
    assert not read(checkpoint)


def test_any_values_in_a_manifest(checkpoint, manifest):
    @settings(max_examples=200, deadline=None)
    @given(
        name=names(["a.bin", "..", "/dev/zero", "a\0", "\udc80"]),
        described=_VALUES,
        listed=_VALUES,
    )
    @example(name="/dev/zero", described={"bytes": 0, "sha256": ""}, listed=[])
    @example(name="../../x", described={"bytes": 0, "sha256": ""}, listed=[])
    @example(name="a\0", described={"bytes": 0, "sha256": ""}, listed=[])
    @example(name="a.bin", described=[], listed="text")
    def check(name, described, listed):
        for listing in ({name: described}, listed):
            content = {"format": files.FORMAT, "step": 7, "files": listing}
            manifest.write_text(json.dumps(content))
            assert read(checkpoint) == (listing == {})

    check()


# --- Error files ---

RECORD = {
    "rank": 3,
    "type": "ValueError",
    "message": "no such file",
    "traceback": "Traceback ...",
    "time": 12.5,
    "chain": ["ValueError", "KeyError"],
}


@pytest.mark.parametrize("content", [DEEP, HUGE, b'{"a":' * 100_000, b"\xff"])
def test_error_files_that_are_none(tmp_path, content):
    path = tmp_path / "e"
    path.write_bytes(content)
    assert error_file.read(path) is None


def test_mutated_error_files(tmp_path):
    path = tmp_path / "e"
    content = json.dumps(RECORD).encode()
    path.write_bytes(content)
    assert error_file.read(path).chain == ("ValueError", "KeyError")
    for seed in range(MUTATIONS):
        path.write_bytes(mutated(content, seed))
        error = error_file.read(path)
        if error is not None:
            assert isinstance(error.time, float)
            assert len(str(error).splitlines()) <= 1
            assert error.peer_lost in (True, False)


def test_any_values_in_an_error_file(tmp_path):
    path = tmp_path / "e"

    @settings(max_examples=200, deadline=None)
    @given(st.sampled_from(sorted(RECORD)), _VALUES)
    def check(key, value):
        path.write_text(json.dumps({**RECORD, key: value}))
        error = error_file.read(path)
        assert error is None or isinstance(error, error_file.RankError)

    check()


def test_a_long_error_file_is_not_read_into_memory(tmp_path):
    path = tmp_path / "e"
    with path.open("wb") as file:
        file.truncate(1 << 33)
    tracemalloc.start()
    try:
        assert error_file.read(path) is None
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()


# --- Hosts ---

_HOST_CHARACTERS = "abz09._-[]:, \t\n\0é٣"


@settings(max_examples=500)
@given(st.text(alphabet=_HOST_CHARACTERS, max_size=40))
def test_hosts_that_are_taken_read_back(text):
    try:
        hosts = parse_hosts(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert all(host.slots >= 1 for host in hosts)
    assert all(host.name.isascii() and host.name for host in hosts)
    # A host that is there twice may have more slots than one entry can.
    if all(host.slots <= 999_999 for host in hosts):
        again = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        assert parse_hosts(again) == hosts


def test_long_lists_of_hosts_take_their_length():
    began = time.monotonic()
    assert parse_hosts(",".join(["h:1"] * 100_000)) == (Host("h", 100_000),)
    for text in ("a" * 1_000_000 + "!", "[" + ":" * 1_000_000, "," * 100_000):
        with pytest.raises(UsageError):
            parse_hosts(text)
    assert time.monotonic() - began < 10
