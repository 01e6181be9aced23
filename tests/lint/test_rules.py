"""Each rule finds what it forbids, and lets pass what it allows."""

import pytest

from tests.lint import floors


@pytest.mark.parametrize(
    ("folder", "line", "bad"),
    [
        ("csrc/base", '#include "csrc/base/status.h"', False),
        ("csrc/base", '#include "csrc/comm/net/socket.h"', True),
        ("csrc/comm/net", '#include "csrc/control/message.h"', True),
        ("csrc/collective", '#include "csrc/control/message.h"', True),
        ("csrc/control", '#include "csrc/collective/collective.h"', True),
        ("csrc/runtime", '#include "csrc/control/message.h"', False),
        ("csrc/runtime", '#include "csrc/testing/run_ranks.h"', True),
        ("csrc/runtime", '#include "csrc/capi/keras_ring.h"', True),
        ("csrc/runtime", '# include "tf_ops/tf_adapters.h"', True),
        ("csrc/comm/net", "#include <vector>", False),
        ("csrc/comm/host", "#include <Python.h>", True),
        ("csrc/comm/store", '#include "tensorflow/core/framework/op.h"', True),
        ("csrc/comm/net", '#include "csrc/comm/store/store.h"', True),
        ("csrc/comm/store", '#include "csrc/comm/net/link.h"', False),
        (
            "csrc/collective",
            '#include "csrc/collective/shm/chunk_barrier.h"',
            True,
        ),
        ("csrc/control", '#include "csrc/comm/net/link.h"', True),
        ("csrc/base", '// #include "csrc/comm/net/socket.h"', False),
    ],
)
def test_core(folder, line, bad):
    assert bool(floors.core_problems(folder, f"int a;\n{line}\n")) == bad


@pytest.mark.parametrize(
    ("header", "bad"),
    [
        ("csrc/capi/keras_ring.h", False),
        ("csrc/base/dtype_table.h", False),
        ("csrc/capi/handles.h", True),
        ("csrc/base/status.h", True),
        ("csrc/runtime/runtime.h", True),
    ],
)
def test_adapters(header, bad):
    problems = floors.adapter_problems("tf_ops", f'#include "{header}"\n')
    assert bool(problems) == bad


@pytest.mark.parametrize(
    ("header", "bad"),
    [
        ("<stddef.h>", False),
        ("<stdint.h>", False),
        ("<string>", True),
        ('"csrc/base/status.h"', True),
    ],
)
def test_c_interface(header, bad):
    assert bool(floors.c_header_problems(f"#include {header}\n")) == bad


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ('std::getenv("A");', True),
        ("// getenv is banned", False),
        ("std::this_thread::sleep_for(x);", True),
        ("usleep(3);", True),
        ("#if HAVE_MPI", True),
        ("#if defined(HAVE_MPI)", True),
        ("#if defined(__clang__)", False),
        ("#ifndef A_H_", False),
    ],
)
def test_banned(code, bad):
    problems = floors.banned_calls(code + "\n", may_read_environment=False)
    assert bool(problems) == bad


def test_only_one_file_reads_the_environment():
    assert not floors.banned_calls("getenv(a);", may_read_environment=True)


@pytest.mark.parametrize(
    ("path", "line", "bad"),
    [
        ("tensorflow/xla.py", "import tensorflow as tf", False),
        ("launch/plan.py", "import tensorflow as tf", True),
        ("launch/cli/cli.py", "def f():\n    import numpy.linalg", True),
        ("launch/cli/cli.py", "from keras_ring.launch import job", False),
        ("launch/cli/cli.py", "from keras_ring.tensorflow import xla", True),
        ("launch/job.py", "from keras_ring.launch.cli import doctor", True),
        ("protocol/cores.py", "from keras_ring import job", True),
        (
            "keras/optimizer/tape.py",
            "from keras_ring.tensorflow import names",
            False,
        ),
        (
            "keras/optimizer/tape.py",
            "from keras_ring.keras.lanes import compat",
            False,
        ),
        (
            "keras/optimizer/tape.py",
            "from keras_ring.keras.model import seeds",
            True,
        ),
        ("keras/optimizer/tape.py", "from keras_ring import callbacks", True),
        ("keras/optimizer/tape.py", "import keras_ring as kr", True),
        ("keras/optimizer/tape.py", "from keras_ring import __version__", True),
        (
            "tensorflow/gathers.py",
            "def f():\n    from keras_ring.keras.optimizer.mixin import x",
            True,
        ),
        ("tensorflow/names.py", "import_module('keras_ring.job')", True),
        ("bench/on_torch.py", "import keras_ring as kr", False),
        ("new/file.py", "import os", True),
        ("keras/startup/a.py", "from keras_ring.keras.fit import watch", False),
        ("core/topology.py", "from keras_ring import job", True),
        ("core/topology.py", "from keras_ring import errors", False),
        ("keras/data/epochs.py", "from tests.harness import run_ranks", True),
        ("keras/data/epochs.py", "from . import sharded_files", True),
        ("tensorflow/xla.py", "from keras_ring import _core", True),
        ("core/native.py", "from keras_ring import _core", False),
        ("tensorflow/xla.py", "import ctypes", True),
        ("core/objects.py", "import pickle", False),
        ("core/arrays.py", "import numpy as np", False),
        ("core/arrays.py", "def f():\n    import tensorflow", True),
        ("core/autotune/worker.py", "from keras import ops", True),
        ("core/job.py", "from keras_ring.keras.startup import install", True),
        ("launch/job.py", "import pickle", True),
        ("unchanged/once.py", "_x = ContextVar('x', default=0)", True),
        ("keras/scope.py", "_x = ContextVar('x', default=0)", False),
        (
            "keras/data/epochs.py",
            "def f():\n    from cloudpickle import loads",
            True,
        ),
    ],
)
def test_python(path, line, bad):
    assert bool(floors.python_problems(path, line)) == bad


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ('"""As in `_gone.thing`."""', True),
        ("# See `_gone`.", True),
        ("# See `_gone()`.", True),
        ('"""As in `_room.names`."""', False),
        ("def _here():\n    pass  # See `_here`.", False),
        ('"""By `_total` at the end."""', False),
    ],
)
def test_quoted_names(text, bad):
    assert bool(floors.quoted_problems(text, {"_room"})) == bad


@pytest.mark.parametrize("table", [floors.PYTHON_FLOORS, floors.CPP_FLOORS])
def test_no_floor_uses_one_above(table):
    """So there is no circle: a room uses only rooms that come before it."""
    below = ["__init__"]
    for room, used in table.items():
        assert set(used) <= set(below), room
        below.append(room)
