"""What runs now, as code that Keras calls finds it."""

import threading

import pytest

from keras_ring.keras import scope


def test_a_field_has_its_former_value_behind():
    assert scope.current() == scope.Scope()
    with scope.inside(watch="fit", is_reduced=True):
        with scope.inside(watch="fit of a callback"):
            assert scope.current().watch == "fit of a callback"
            assert scope.current().is_reduced
        assert scope.current().watch == "fit"
    assert scope.current() == scope.Scope()


def test_an_error_ends_it_as_well():
    with pytest.raises(KeyError), scope.inside(part=1):
        raise KeyError
    assert scope.current().part is None


def test_overlapping_statements_leave_each_others_fields():
    first, second = scope.inside(part=1), scope.inside(losses=2)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert (scope.current().part, scope.current().losses) == (None, 2)
    second.__exit__(None, None, None)
    assert scope.current() == scope.Scope()


def test_another_thread_is_outside():
    seen = []
    with scope.inside(is_once=True):
        thread = threading.Thread(target=lambda: seen.append(scope.current()))
        thread.start()
        thread.join()
    assert seen == [scope.Scope()]


def test_there_are_no_other_fields():
    with pytest.raises(TypeError), scope.inside(steps=1):
        pass
