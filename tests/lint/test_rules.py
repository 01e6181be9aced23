"""Each rule finds what it forbids, and lets pass what it allows."""

import pytest

from tests.lint import floors


@pytest.mark.parametrize(
    ("folder", "line", "bad"),
    [
        ("csrc/base", '#include "csrc/base/status.h"', False),
        ("csrc/base", '#include "csrc/comm/socket.h"', True),
        ("csrc/comm", '#include "csrc/control/message.h"', True),
        ("csrc/collective", '#include "csrc/control/message.h"', True),
        ("csrc/control", '#include "csrc/collective/collective.h"', True),
        ("csrc/runtime", '#include "csrc/control/message.h"', False),
        ("csrc/runtime", '#include "csrc/testing/run_ranks.h"', True),
        ("csrc/runtime", '# include "tf_ops/tf_adapters.h"', True),
        ("csrc/comm", "#include <vector>", False),
        ("csrc/comm", "#include <Python.h>", True),
        ("csrc/comm", '#include "tensorflow/core/framework/op.h"', True),
        ("csrc/base", '// #include "csrc/comm/socket.h"', False),
    ],
)
def test_core(folder, line, bad):
    assert bool(floors.core_problems(folder, f"int a;\n{line}\n")) == bad


@pytest.mark.parametrize(
    ("header", "bad"),
    [
        ("csrc/runtime/runtime.h", False),
        ("csrc/control/tensor_entry.h", False),
        ("csrc/base/status.h", False),
        ("csrc/runtime/executor.h", True),
        ("csrc/comm/socket.h", True),
    ],
)
def test_adapters(header, bad):
    problems = floors.adapter_problems("tf_ops", f'#include "{header}"\n')
    assert bool(problems) == bad


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
        ("ops.py", "import tensorflow as tf", False),
        ("launcher/plan.py", "import tensorflow as tf", True),
        ("cli/cli.py", "def f():\n    import numpy.linalg", True),
        ("cli/cli.py", "from keras_ring.launcher import job", False),
        ("cli/cli.py", "from keras_ring import ops", True),
        ("launcher/job.py", "from keras_ring.cli import doctor", True),
        ("_launch_protocol/cores.py", "from keras_ring import job", True),
        ("ops.py", "from tests.harness import run_ranks", True),
        ("ops.py", "from . import basics", True),
        ("ops.py", "from keras_ring import _core", True),
        ("_runtime/native.py", "from keras_ring import _core", False),
        ("ops.py", "import ctypes", True),
        ("_ops/objects.py", "import pickle", False),
        ("launcher/job.py", "import pickle", True),
        ("data.py", "def f():\n    from cloudpickle import loads", True),
    ],
)
def test_python(path, line, bad):
    assert bool(floors.python_problems(path, line)) == bad
