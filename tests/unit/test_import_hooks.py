"""Functions that are called when a framework has been imported."""

import importlib
import sys

import pytest

from keras_ring.core.import_hooks import ImportHooks

OUTER, INNER = "kr_outer_framework", "kr_inner_framework"


@pytest.fixture
def hooks(tmp_path, monkeypatch):
    """Hooks on two modules, of which one imports the other in its middle."""
    (tmp_path / f"{INNER}.py").write_text("value = 1\n")
    (tmp_path / f"{OUTER}.py").write_text(
        f"import {INNER}\nvalue = {INNER}.value + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield ImportHooks((OUTER, INNER))
    for name in (OUTER, INNER):
        sys.modules.pop(name, None)


def loaded(name):
    return hasattr(sys.modules.get(name), "value")


def test_after_an_import_is_at_its_end(hooks):
    seen = []
    hooks.after(INNER, lambda: seen.append((loaded(INNER), loaded(OUTER))))
    assert seen == []
    module = importlib.import_module(OUTER)
    assert seen == [(True, False)]
    # As if nobody had been there.
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.__spec__.loader is module.__loader__
    hooks.after(OUTER, lambda: seen.append("now"))
    assert seen[1:] == ["now"]


def test_when_idle_is_at_the_end_of_the_outer_import(hooks):
    seen = []

    def hook():
        seen.append((loaded(INNER), loaded(OUTER)))

    hooks.when_idle(hook)
    assert seen == []
    importlib.import_module(OUTER)
    assert seen == [(True, True)]
    hooks.when_idle(hook)
    assert seen == [(True, True)] * 2


def test_each_import_that_comes_alone_is_told(hooks):
    seen = []
    hooks.when_idle(lambda: seen.append(loaded(OUTER)))
    importlib.import_module(INNER)
    importlib.import_module(OUTER)
    assert seen == [False, True]


def test_a_hook_may_import_the_others(hooks):
    seen = []

    def hook():
        if not seen:
            seen.append("begun")
            importlib.import_module(OUTER)
            seen.append(loaded(OUTER))

    hooks.when_idle(hook)
    importlib.import_module(INNER)
    assert seen == ["begun", True]


def test_an_import_that_fails_is_waited_for_again(hooks, tmp_path):
    seen = []
    hooks.after(OUTER, lambda: seen.append("after"))
    hooks.when_idle(lambda: seen.append("idle"))
    source = tmp_path / f"{OUTER}.py"
    text = source.read_text()
    source.write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        importlib.import_module(OUTER)
    assert seen == []
    source.write_text(text)
    importlib.invalidate_caches()
    importlib.import_module(OUTER)
    assert seen == ["after", "idle"]


def test_a_module_that_is_not_there_is_no_matter(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    hooks = ImportHooks(("kr_no_framework",))
    hooks.when_idle(lambda: pytest.fail("called"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("kr_no_framework")
