"""How `--auto` gets into a program, with Keras and TensorFlow that are small.

What it starts there is a stand-in, too, which notes who has started it when.
"""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = ROOT / "keras_ring"
HOOK = str(ROOT / "keras_ring/unchanged/hook")
# Module -> what it says. `{real}` is keras_ring, of which all but what starts
# is there.
MODULES = {
    "tensorflow/__init__.py": """
        import time
        time.sleep(float(__import__("os").environ.get("SLOW", "0")))
        from tensorflow import inner
        def __getattr__(name):
            # As TensorFlow's own: Keras is imported when it is asked for.
            if name != "keras":
                raise AttributeError(name)
            import keras
            return keras
        IS_COMPLETE = True
        """,
    "tensorflow/inner.py": "",
    "keras/__init__.py": """
        import time
        time.sleep(float(__import__("os").environ.get("SLOW", "0")))
        IMPORTS_TENSORFLOW = True
        import tensorflow
        from keras import layers
        time.sleep(float(__import__("os").environ.get("SLOW_END", "0")))
        IS_COMPLETE = True
        """,
    "keras/layers.py": """
        class Dense:
            pass
        """,
    "torch/__init__.py": "",
    "tf_keras/__init__.py": """
        import tensorflow
        IS_COMPLETE = True
        """,
    "keras_ring/__init__.py": "__path__.append({real!r})",
    "keras_ring/unchanged/__init__.py": """
        __path__.append({real!r} + '/unchanged')
        """,
    "keras_ring/unchanged/activation.py": """
        import os, sys, time
        import keras, tensorflow

        def activate(settings=None):
            time.sleep(float(os.environ.get("SLOW_START", "0")))
            loaded = [
                name for name in ("keras", "tensorflow", "tf_keras")
                if hasattr(sys.modules.get(name), "IS_COMPLETE")
            ]
            with open(os.environ["NOTES"], "a") as notes:
                asked = os.environ.get("KERAS_RING_AUTO")
                print(os.getpid(), asked, *loaded, file=notes)
            if "FAIL" in os.environ:
                raise ValueError("this cannot be trained so")
        """,
}
CHILD = """
import os, sys
sys.stdout.write(f"{os.environ.get('KERAS_RING_AUTO')} ")
import keras
sys.stdout.write(f"{'HOOK' in os.environ.get('PYTHONPATH', '')}\\n")
"""


class Program:
    """A place for scripts, and an environment in which they start."""

    def __init__(self, folder):
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.touch()
        for name, text in MODULES.items():
            self.write(
                f"modules/{name}", text.replace("{real!r}", repr(str(REAL)))
            )
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([HOOK, str(folder / "modules")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "KERAS_RING_AUTO": "1",
            "KERAS_RING_ERROR_FILE": str(folder / "rank.0.error.json"),
            "NOTES": str(self.notes),
        }

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def run(self, *words, check=True, **environment):
        done = subprocess.run(
            words,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check:
            assert (done.returncode, done.stderr) == (0, "")
        return done

    def python(self, text, *options, check=True, **environment):
        script = self.write("train.py", text)
        return self.run(
            *(sys.executable, *options, str(script)),
            check=check,
            **environment,
        )

    @property
    def started(self):
        """What was complete at each start, in a process that was not yet."""
        return [
            line.split()[2:] for line in self.notes.read_text().splitlines()
        ]


@pytest.fixture
def program(tmp_path):
    return Program(tmp_path)


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("import keras", ["keras", "tensorflow"]),
        ("import tensorflow", ["keras", "tensorflow"]),
        ("import tensorflow as tf; tf.keras", ["keras", "tensorflow"]),
        ("from keras.layers import Dense", ["keras", "tensorflow"]),
        ("import tensorflow.inner", ["keras", "tensorflow"]),
        ("import tf_keras", ["keras", "tensorflow", "tf_keras"]),
        ("import keras, tensorflow, tf_keras", ["keras", "tensorflow"]),
    ],
)
def test_it_starts_once_what_is_imported_is_complete(program, text, complete):
    program.python(f"{text}\nprint('went on')")
    assert program.started == [complete]


def test_it_starts_nothing_in_other_programs(program):
    done = program.python(
        """
        import sys
        import json, importlib.util
        # Libraries ask so whether it is there.
        assert importlib.util.find_spec("json")
        heavy = {"tensorflow", "keras", "importlib.util", "threading", "typing"}
        print(sorted(heavy & set(sys.modules)), sys.path[1:2])
        print(any("unchanged" in each for each in sys.path))
        """,
        "-X",
        "frozen_modules",
    )
    assert program.started == []
    assert done.stdout.splitlines()[1] == "False"
    assert "tensorflow" not in done.stdout


def test_a_program_without_keras_is_told_of(program):
    told = "this program has imported torch and no Keras: each rank has done"
    for text, rank, expected in (
        ("import torch", "0", True),
        ("import torch", "1", False),
        ("import torch, keras", "0", False),
        ("import keras", "0", False),
        ("import importlib.util as u; u.find_spec('torch')", "0", False),
    ):
        done = program.python(
            text, check=False, KERAS_RING_RANK=rank, KERAS_RING_ERROR_FILE=""
        )
        assert done.returncode == 0, done.stderr
        assert (told in done.stderr) == expected, (text, rank)


def test_its_own_modules_are_few(program):
    """A rank may run a thousand small programs beside."""

    def modules(path):
        done = program.run(
            *(sys.executable, "-c", "import sys; print(*sorted(sys.modules))"),
            PYTHONPATH=path,
        )
        return set(done.stdout.split())

    more = modules(HOOK) - modules("")
    assert more <= {"sitecustomize", "importlib.machinery"}, more


def test_nothing_happens_where_it_is_off(program):
    for off in ("", "0"):
        program.python("import keras", KERAS_RING_AUTO=off)
    del program.environment["KERAS_RING_AUTO"]
    program.python("import keras")
    assert program.started == []


def test_modules_look_as_without_it(program):
    look = """
        import sys, pickle, importlib, importlib.util
        early = importlib.util.find_spec("tensorflow")
        assert "tensorflow" not in sys.modules
        assert early.loader.get_filename() == early.origin
        import keras, tensorflow
        for module in (keras, tensorflow):
            loader, spec = module.__loader__, module.__spec__
            print(spec, module.__file__, type(loader), sorted(vars(loader)))
            print(spec.loader is loader, spec._initializing)
            print(loader.get_source(module.__name__) is not None)
        print(pickle.loads(pickle.dumps(keras.layers.Dense)))
        print(importlib.reload(keras) is keras, keras.IS_COMPLETE)
        print([type(each).__name__ for each in sys.meta_path])
        """

    def shown(**environment):
        text = program.python(look, **environment).stdout
        return re.sub(r"object at 0x\w+", "object", text)

    assert shown() == shown(KERAS_RING_AUTO="0")
    assert len(program.started) == 1


def test_programs_that_python_finds_as_modules(program):
    program.write("package/__init__.py", "import keras")
    program.write("package/train.py", "import tensorflow; print(__name__)")
    done = program.run(sys.executable, "-m", "package.train")
    assert done.stdout == "__main__\n"
    assert len(program.started) == 1
    # Keras itself, as a program.
    program.write("modules/keras/__main__.py", "print(__name__)")
    (program.folder / "rank.0.error.json.auto").unlink()
    done = program.run(sys.executable, "-m", "keras")
    assert done.stdout == "__main__\n"
    assert len(program.started) == 2


def test_a_sitecustomize_of_the_users_runs_as_well(program):
    folder = program.folder / "site"
    program.write(
        "site/sitecustomize.py",
        """
        import sys
        assert sys.modules[__name__].__dict__ is globals()
        value = 7
        print("customized", __name__, __file__)
        """,
    )
    path = os.pathsep.join([program.environment["PYTHONPATH"], str(folder)])
    done = program.python(
        "import sitecustomize, keras; print(sitecustomize.value)",
        PYTHONPATH=path,
    )
    assert done.stdout.splitlines() == [
        f"customized sitecustomize {folder / 'sitecustomize.py'}",
        "7",
    ]
    assert len(program.started) == 1


def test_a_broken_sitecustomize_is_told_of_as_without_us(program):
    folder = program.write("site/sitecustomize.py", "1 / 0").parent
    path = os.pathsep.join([program.environment["PYTHONPATH"], str(folder)])
    done = program.python("import keras", PYTHONPATH=path, check=False)
    assert done.returncode == 0
    assert "Error in sitecustomize" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert len(program.started) == 1


def test_children_are_plain_programs(program):
    program.write("child.py", CHILD.replace("HOOK", HOOK))
    done = program.python(
        """
        import subprocess, sys
        import keras
        sys.exit(subprocess.run([sys.executable, "child.py"]).returncode)
        """
    )
    # What else is in the path still is: Keras was found.
    assert done.stdout == "None False\n"
    assert len(program.started) == 1


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("first", ["import keras", ""])
@pytest.mark.parametrize("explicit", ["import keras_ring.auto", ""])
def test_workers_are_plain_programs(program, method, first, explicit):
    """They run the beginning of the program, too, some before it has Keras."""
    if explicit:
        # As of ranks that something else has started.
        program.environment["PYTHONPATH"] = str(program.folder / "modules")
        del program.environment["KERAS_RING_AUTO"]
        del program.environment["KERAS_RING_ERROR_FILE"]
    program.python(
        f"""
        {explicit}
        {first}
        import multiprocessing

        def work(number):
            import keras
            return number

        if __name__ == "__main__":
            pool = multiprocessing.get_context("{method}").Pool(1)
            with pool:
                assert pool.map(work, [1, 2]) == [1, 2]
            import keras
        """
    )
    assert len(program.started) == 1


def test_it_may_be_a_child_that_trains(program):
    program.write("train.py", "import keras")
    program.write(
        "wrapper.py",
        """
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, "train.py"]).returncode)
        """,
    )
    script = program.write(
        "wrapper.sh", f"#!/bin/sh\ncd .\n{sys.executable} wrapper.py\n"
    )
    program.run("sh", str(script))
    assert len(program.started) == 1


def test_a_child_from_before_is_a_plain_program(program):
    program.write(
        "child.py", "import sys; sys.stdin.read(); import keras; print('plain')"
    )
    done = program.python(
        """
        import subprocess, sys
        words = ["sh", "-c", f"{sys.executable} child.py; true"]
        child = subprocess.Popen(words, stdin=subprocess.PIPE)
        import keras
        child.stdin.close()
        sys.exit(child.wait())
        """
    )
    assert done.stdout == "plain\n"
    assert len(program.started) == 1


def test_two_programs_of_a_rank_are_refused(program):
    """The second would train alone, or wait for ranks that have gone."""
    program.python("import keras")
    done = program.python("import keras", check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "Two programs of this rank" in last
    assert "Start a job for each." in last
    assert len(program.started) == 1


def test_an_error_is_the_programs(program):
    done = program.python("import keras\nprint('on')", check=False, FAIL="1")
    assert (done.returncode, done.stdout) == (1, "")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "train.py" in lines[1]
    assert lines[-1] == "ValueError: this cannot be trained so"


def test_an_error_that_is_caught_comes_again(program):
    done = program.python(
        """
        try:
            import keras
        except Exception:
            keras = None
        print("caught")
        import tensorflow
        print("trains alone")
        """,
        check=False,
        FAIL="1",
    )
    assert (done.returncode, done.stdout) == (1, "caught\n")
    last = done.stderr.splitlines()[-1]
    assert last == "ValueError: this cannot be trained so"


def test_what_is_started_may_import_more_before_it_fails(program):
    path = program.folder / "modules/keras_ring/unchanged/activation.py"
    path.write_text(path.read_text().replace("sys.modules.get", "__import__"))
    text = "try: import keras\nexcept ValueError: pass\nimport tensorflow"
    done = program.python(text, check=False, FAIL="1")
    assert program.started == [["keras", "tensorflow", "tf_keras"]]
    last = done.stderr.splitlines()[-1]
    assert last == "ValueError: this cannot be trained so"


def test_a_tensorflow_that_imports_keras_itself(program):
    """As those did that came with Keras 2."""
    path = program.folder / "modules/tensorflow/__init__.py"
    path.write_text(
        path.read_text().replace(
            "IS_COMPLETE", "import keras.layers\nIS_COMPLETE"
        )
    )
    program.python("import tensorflow; print(tensorflow.keras)")
    assert program.started == [["keras", "tensorflow"]]


def test_an_error_of_keras_is_its_own(program):
    program.write("modules/keras/layers.py", "1 / 0")
    done = program.python("import keras", check=False)
    assert done.stderr.splitlines()[-1].startswith("ZeroDivisionError")
    assert program.started == []


def test_a_python_without_keras_ring(program):
    (program.folder / "modules/keras_ring/__init__.py").unlink()
    (program.folder / "modules/keras_ring").rename(program.folder / "gone")
    done = program.python(
        """
        import sys
        sys.meta_path[:] = [
            each for each in sys.meta_path if "editable" not in str(each)
        ]
        sys.path[:] = [each for each in sys.path if "site-p" not in each]
        try:
            import keras
        except ImportError:
            print("caught")
        """,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert f"needs keras_ring, which {sys.executable} does not have" in last


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("keras", "tensorflow"),
        ("keras", "keras"),
        ("tensorflow", "tensorflow"),
        ("tf_keras", "keras"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_threads_that_import_at_once(program, one, other, order):
    """Locks of modules are taken in both orders, and nobody waits for ever.

    Whoever has imported Keras has it with what was started.
    """
    first, second = (one, other)[::order]
    done = program.python(
        f"""
        import os, threading, time

        def load(name):
            module = __import__(name)
            assert module.IS_COMPLETE
            if name == "keras":
                started = open(os.environ["NOTES"]).read()
                assert started, name

        failed = []
        threading.excepthook = lambda told: failed.append(told.exc_value)
        threads = [
            threading.Thread(target=load, args=(name,), daemon=True)
            for name in ("{first}", "{second}")
        ]
        for thread in threads:
            thread.start()
            # Into the middle of the import of the first.
            time.sleep(0.15)
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert not failed, failed
        """,
        SLOW="0.4",
    )
    assert done.stdout == ""
    assert len(program.started) == 1


@pytest.mark.parametrize(("wait", "more"), [("0", "0.3"), ("0.2", "0")])
def test_a_thread_that_imports_keras_in_the_worst_moment(program, wait, more):
    """After it was seen that none does, and before we do so ourselves."""
    done = program.python(
        """
        import os, sys, threading, time
        wait = float(os.environ["WAIT"])
        (finder,) = (
            each for each in sys.meta_path if hasattr(each, "_follow")
        )
        look = finder._is_importing_keras
        completed = []

        def load():
            import keras
            completed.append(keras.IS_COMPLETE)
            completed.append(bool(open(os.environ["NOTES"]).read()))

        thread = threading.Thread(target=load, daemon=True)

        def look_and_be_late():
            found = look()
            if not thread.ident:
                thread.start()
                # Until it would wait for us.
                while not hasattr(
                    sys.modules.get("keras"), "IMPORTS_TENSORFLOW"
                ):
                    time.sleep(0.01)
                time.sleep(wait)
            return found

        finder._is_importing_keras = look_and_be_late
        import tensorflow
        assert sys.modules["keras"].IS_COMPLETE
        thread.join(20)
        print(completed)
        """,
        WAIT=wait,
        SLOW_END=more,
        SLOW_START="0.2",
    )
    assert done.stdout == "[True, True]\n"
    assert program.started == [["keras", "tensorflow"]]


def test_the_command_itself_is_left_alone(program):
    """A rank may run `keras-ring bench`, which imports TensorFlow."""
    program.write("modules/keras_ring/launch/cli/__init__.py", "")
    program.write("modules/keras_ring/launch/cli/cli.py", "import tensorflow")
    program.python("import keras_ring.launch.cli.cli")
    assert program.started == []


def test_it_is_in_a_wheel():
    from setuptools import find_namespace_packages
    from setuptools.command.build_py import build_py
    from setuptools.dist import Distribution

    # As pyproject.toml says.
    packages = find_namespace_packages(str(ROOT), include=["keras_ring*"])
    distribution = Distribution({"packages": packages})
    distribution.script_name = "setup.py"
    distribution.package_dir = {"": str(ROOT)}
    command = build_py(distribution)
    command.finalize_options()
    files = [path for _, _, path in command.find_all_modules()]
    assert any(path.endswith("hook/sitecustomize.py") for path in files)
