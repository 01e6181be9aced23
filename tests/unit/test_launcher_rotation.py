import errno
import io
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_ring.launch.lost_files import LostFiles
from keras_ring.launch.output import RankStream
from keras_ring.launch.output_files import OutputFiles
from keras_ring.launch.plan import make_plan
from keras_ring.launch.request import RunRequest
from keras_ring.launch.rotation import RotatingFile, parse_limit
from keras_ring.launch.usage import UsageError


def _written(directory, chunks, **options):
    """Returns the contents of the files, the oldest first."""
    path = Path(directory) / "stdout"
    file = RotatingFile(path, **options)
    for chunk in chunks:
        file.write(chunk)
        file.flush()
    file.close()
    numbered = sorted(
        Path(directory).glob("stdout.*"), key=lambda each: -int(each.suffix[1:])
    )
    return [each.read_bytes() for each in [*numbered, path]]


@given(
    st.lists(st.text("ab\n", max_size=9).map(str.encode), max_size=9),
    st.integers(1, 9),
)
@settings(max_examples=50, deadline=None)
def test_nothing_is_lost_and_no_line_is_torn(chunks, limit):
    with tempfile.TemporaryDirectory() as directory:
        files = _written(directory, chunks, limit=limit, backups=1000)
    assert b"".join(files) == b"".join(chunks)
    assert all(len(each) <= limit for each in files)
    lines = b"".join(chunks).splitlines(keepends=True)
    ends = {sum(map(len, lines[:index])) for index in range(len(lines) + 1)}
    position = 0
    for each in files[:-1]:
        position += len(each)
        # A line is in two files only if it fits into none.
        if position not in ends:
            start = max(end for end in ends if end < position)
            end = min(end for end in ends if end > position)
            assert end - start > limit


def test_a_line_is_not_written_before_it_is_whole(tmp_path):
    file = RotatingFile(tmp_path / "stdout", limit=100, backups=1)
    file.write(b"one\ntw")
    file.flush()
    assert (tmp_path / "stdout").read_bytes() == b"one\n"
    file.close()
    assert (tmp_path / "stdout").read_bytes() == b"one\ntw"


def test_old_files_go(tmp_path):
    for number in range(1, 4):
        (tmp_path / f"stdout.{number}").write_text("of a job before")
    files = _written(
        tmp_path, [b"%d\n" % n for n in range(9)], limit=4, backups=2
    )
    assert files == [b"4\n5\n", b"6\n7\n", b"8\n"]
    assert len(list(tmp_path.iterdir())) == 3
    assert _written(tmp_path, [b"a\nb\nc\n"], limit=2, backups=0) == [b"c\n"]


@pytest.mark.parametrize("limit", [0, 100])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.ESTALE])
@pytest.mark.parametrize("when", ["write", "flush", "close"])
def test_a_file_that_fails_is_given_up(
    limit, error, when, tmp_path, monkeypatch, capsys
):
    """Its loss is told once, and what is shown of the rank goes on."""

    class Failing(io.BytesIO):
        def fail(self, *data):
            raise OSError(error, os.strerror(error))

    setattr(Failing, when, Failing.fail)
    monkeypatch.setattr(Path, "open", lambda path, mode: Failing())
    shown = []
    lost = LostFiles()
    file = OutputFiles(tmp_path, limit, 1).open(0, "stdout", lost)
    stream = RankStream(shown.append, file)
    stream.feed(b"one\n")
    stream.feed(b"two\n")
    stream.finish()
    lost.tell_others()
    assert [line.text for line in shown] == [b"one", b"two"]
    assert capsys.readouterr().err == (
        f"keras-ring: cannot write {tmp_path}/rank.0/stdout:"
        f" {os.strerror(error)}; the job goes on without it\n"
    )


def test_a_file_that_cannot_be_put_aside_is_given_up(
    tmp_path, monkeypatch, capsys
):
    def replace(before, after):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", replace)
    file = OutputFiles(tmp_path, 4, 1).open(0, "stdout", LostFiles())
    for _ in range(3):
        file.write(b"line\n")
    file.close()
    assert capsys.readouterr().err.count("Input/output error") == 1


@pytest.mark.parametrize(
    ("text", "limit"),
    [("500", 500), ("64k", 1 << 16), ("100M", 100 << 20), ("2GiB", 2 << 30)],
)
def test_limits(text, limit):
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5M", "M", "10 M", "1X"])
def test_malformed_limits(text):
    with pytest.raises(UsageError, match="--output-max-bytes"):
        parse_limit(text)


def _plan(**options):
    request = RunRequest(command=("true",), num_ranks=1, **options)
    return make_plan(request, {"PATH": "/usr/bin:/bin"})


def test_options():
    assert _plan(output_dir="d").output == OutputFiles(Path("d"), 0, 3)
    plan = _plan(output_dir="d", output_max_bytes="1K", output_backups=7)
    assert plan.output == OutputFiles(Path("d"), 1024, 7)
    for wrong in (
        {"output_max_bytes": "1K"},
        {"output_dir": "d", "output_backups": 2},
        {"output_dir": "d", "output_max_bytes": "1K", "output_backups": -1},
    ):
        with pytest.raises(UsageError, match="--output-"):
            _plan(**wrong)
