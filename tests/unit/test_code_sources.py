"""Functions that go to other processes keep names of files and sources."""

import importlib.util
import inspect
import linecache

import numpy as np
import pytest

from keras_ring.protocol import code_sources

NAME = "/nowhere/ipykernel_7/cell.py"
TEXT = """
class Scaled:
    def __init__(self, by):
        self.by = by

    def of(self, x):
        return [self.by * each for each in x]


def outer(n):
    def inner(x):
        if x > n:
            return x
        return (lambda: n)()

    return inner, Scaled(n)
"""


@pytest.fixture
def cell(monkeypatch):
    """Returns what a cell of a notebook defines, which is in no file."""
    lines = TEXT.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, NAME, (len(TEXT), None, lines, NAME))
    names = {"__name__": "__main__"}
    exec(compile(TEXT, NAME, "exec"), names)
    return names


def elsewhere(pickled, monkeypatch):
    """Unpickles as in another process, which knows no such source."""
    data = pickled.encode()
    monkeypatch.delitem(linecache.cache, NAME)
    return code_sources.decode(data).load()


def test_sources_and_names_of_all_that_is_inside(cell, monkeypatch):
    outer = elsewhere(code_sources.dumps(cell["outer"]), monkeypatch)
    inner, scaled = outer(3)
    assert (inner(5), inner(1), scaled.of([2])) == (5, 3, [6])
    for function in (outer, inner, scaled.of):
        assert function.__code__.co_filename == NAME
        assert inspect.getsource(function).strip() in TEXT
    constants = inner.__code__.co_consts
    (within,) = (each for each in constants if hasattr(each, "co_code"))
    assert within.co_filename == NAME


def test_a_source_counts_more_than_a_file_of_that_name(cell, monkeypatch):
    pickled = code_sources.dumps(cell["outer"])
    data = pickled.encode()
    other = (1, None, ["other\n"], NAME)
    monkeypatch.setitem(linecache.cache, NAME, other)
    code_sources.decode(data).load()
    linecache.checkcache(NAME)
    assert linecache.getline(NAME, 2) == "class Scaled:\n"


def test_what_comes_back_brings_no_sources(cell):
    assert code_sources.dumps(cell["outer"]).sources == {NAME: TEXT}
    back = code_sources.dumps(cell["outer"], with_sources=False)
    assert back.sources == {}
    # By reference: the other process imports it.
    assert code_sources.dumps(inspect.getsource).sources == {}


@pytest.mark.parametrize("pickler", [None, "ray.cloudpickle"])
def test_arrays_may_be_apart(cell, pickler):
    base = None
    if pickler is not None:
        if importlib.util.find_spec("ray") is None:
            pytest.skip("ray is not installed: make engines")
        base = importlib.import_module(pickler).CloudPickler
    array = np.arange(100_000)
    pickled = code_sources.dumps((cell["outer"], array), base, apart=True)
    assert len(pickled.buffers) == 1
    assert len(pickled.data) < 10_000
    outer, got = pickled.load()
    assert outer.__code__.co_filename == NAME
    np.testing.assert_array_equal(got, array)
