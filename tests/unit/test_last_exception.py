"""Which exception counts as the one that a program ended for."""

import subprocess
import sys
import types

import pytest
import tensorflow as tf

from keras_ring.core import last_exception
from keras_ring.protocol import error_file
from keras_ring.tensorflow import op_errors


class Core:
    """A job in which so many buckets were reduced."""

    def __init__(self):
        self.buckets = 7
        self.initialized = True

    def is_initialized(self):
        return self.initialized

    def metrics(self):
        return {"buckets": self.buckets}


@pytest.fixture
def core(monkeypatch):
    core = Core()
    native = types.SimpleNamespace(core=lambda: core)
    monkeypatch.setattr(last_exception, "native", native)
    monkeypatch.setattr(last_exception, "_last", None)
    monkeypatch.setattr(sys, "exit", sys.exit)
    return core


def test_the_last_error_counts_until_the_program_has_gone_on(core):
    assert last_exception.reason() == ""
    last_exception.note(KeyError("first"))
    last_exception.note(ValueError("second"))
    assert (
        last_exception.reason()
        == "ValueError: second, which its program caught"
    )
    core.buckets += 1
    assert last_exception.reason() == ""


def test_what_tensorflow_asks_of_nodes_is_no_error(core, monkeypatch):
    """It traces what a program does after an error, such as saving."""
    message = property(tf.errors.OpError.message.fget)
    monkeypatch.setattr(tf.errors.OpError, "message", message)
    op_errors.install()
    last_exception.note(KeyError("the cause"))

    @tf.function
    def traced(variable, x):
        return variable.assign_add(x)

    traced(tf.Variable(1.0), 1.0)
    assert (
        last_exception.reason()
        == "KeyError: 'the cause', which its program caught"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="reshape"):
        tf.reshape(tf.ones([3]), [2])
    assert last_exception.reason().startswith("InvalidArgumentError: ")


def test_outside_of_a_job_nothing_is_noted(core):
    core.initialized = False
    last_exception.note(ValueError("early"))
    core.initialized = True
    assert last_exception.reason() == ""


def test_it_is_written_for_the_launcher(core, tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("KERAS_RING_ERROR_FILE", str(path))
    last_exception.write()
    assert not path.exists()
    last_exception.note(ValueError("why"))
    last_exception.write()
    error = error_file.read(path)
    assert (error.type, error.message, error.caught) == ("ValueError", "why", 1)


@pytest.mark.parametrize(
    ("status", "told"), [(3, True), ("text", True), (0, False), (None, False)]
)
def test_what_is_handled_when_the_program_leaves(core, status, told):
    last_exception.install()
    last_exception.install()
    with pytest.raises(SystemExit) as left:
        try:
            raise ValueError("why")
        except ValueError:
            sys.exit(status)
    assert left.value.code == status
    assert ("why" in last_exception.reason()) == told


def test_leaving_goes_on_as_before():
    program = (
        "from keras_ring.core import last_exception; import sys\n"
        "last_exception.install()\nsys.exit('text')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "text\n")
