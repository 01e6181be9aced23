"""Starts `--auto` in the Python programs of a rank.

Python imports a module of this name when it begins, and `keras-ring run --auto`
has put this directory first in its path. At that time only a finder is added.
When the program has imported Keras or TensorFlow, keras_ring is imported and
started. In other programs nothing happens. A `sitecustomize` that this one
hides runs as well.

Any version of Python may import this, so its syntax is that of old ones.
"""

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_DIRECTORY = os.path.dirname(os.path.abspath(__file__))
_TENSORFLOW = "tensorflow"
_KERAS = ("keras", "tf_keras")
_OTHERS = ("torch", "jax", "mxnet")
# The `keras-ring` command itself, which a rank may run.
_COMMAND = "keras_ring.launch.cli.cli"


class _Finder:
    """A finder of Keras and TensorFlow, until the first import is complete.

    A thread that imports a module holds its lock, and Keras imports TensorFlow.
    The start of `--auto` imports both, so it must not wait for the lock of
    Keras while another thread holds it and waits for that of TensorFlow.
    """

    def __init__(self) -> None:
        # By thread: those of these modules that it imports, outermost first.
        self._imports: dict[int, list[str]] = {}
        # Threads, and the module for which they ask the other finders.
        self._asking: set[tuple[int, str]] = set()
        self._begun = False
        # Whether the end of the program is followed.
        self._tells = False
        self._failure: BaseException | None = None

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Returns the spec of the other finders, and follows its import."""
        if fullname in _OTHERS and not self._tells:
            self._tells = True
            import atexit

            atexit.register(_tell_of_nothing)
        if fullname != _TENSORFLOW and fullname not in _KERAS:
            return None
        question = (_thread.get_ident(), fullname)
        if question in self._asking or _COMMAND in sys.modules:
            return None
        if self._failure is not None:
            # The program has caught the error and must not train nevertheless.
            raise self._failure
        from importlib import util

        self._asking.add(question)
        try:
            if not self._begun:
                # Its import determines where TensorFlow puts tensors, so it
                # must come before the first one.
                _starting()
            spec = util.find_spec(fullname)
        finally:
            self._asking.discard(question)
        if spec is not None:
            self._follow(spec)
        return spec

    def _follow(self, spec: "ModuleSpec") -> None:
        """Makes the loader of a module report when it has executed it."""
        loader: object = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return
        if isinstance(loader, type):
            return

        def exec_module(module: "ModuleType") -> None:
            # Restores the loader, for code that inspects it.
            vars(loader).pop("exec_module", None)
            if module.__name__ == spec.name:
                self._execute(execute, module)
            else:
                execute(module)

        vars(loader)["exec_module"] = exec_module

    def _execute(
        self, execute: "Callable[[ModuleType], None]", module: "ModuleType"
    ) -> None:
        thread = _thread.get_ident()
        imports = self._imports.setdefault(thread, [])
        imports.append(module.__name__)
        try:
            execute(module)
        finally:
            imports.pop()
            if not imports:
                del self._imports[thread]
        # Keras may import TensorFlow: only the outermost module is complete.
        if not imports:
            self._after(module)

    def _after(self, module: "ModuleType") -> None:
        """Starts `--auto` if need be, after an outermost import is complete."""
        if module.__name__ == _TENSORFLOW:
            # Other threads need not wait for its lock any more. This comes
            # first, so that a thread that imports Keras now either does not
            # wait or is seen below.
            vars(module.__spec__)["_initializing"] = False
        if module.__name__ != _KERAS[0] and self._is_importing_keras():
            # The thread that imports Keras starts `--auto` at the end.
            return
        if module.__name__ == _TENSORFLOW:
            from importlib import import_module

            # The thread that imports it, perhaps another one, starts `--auto`.
            import_module(_KERAS[0])
        self._start()

    def _is_importing_keras(self) -> bool:
        return any(
            name in imports
            for imports in list(self._imports.values())
            for name in _KERAS
        )

    def _start(self) -> None:
        if self._begun:
            # The import is part of the start itself, or another thread starts.
            return
        self._begun = True
        try:
            _starting().start()
        except BaseException as error:
            self._failure = error
            # A program that catches it and imports them again gets it again.
            for name in (_TENSORFLOW, *_KERAS):
                sys.modules.pop(name, None)
            raise
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _starting() -> "ModuleType":
    from importlib import import_module

    try:
        return import_module("keras_ring.unchanged.starting")
    except ModuleNotFoundError as error:
        if error.name != "keras_ring":
            raise
        raise RuntimeError(
            "keras-ring run --auto needs keras_ring, which "
            f"{sys.executable} does not have: install it there, or run the "
            "Python that has it."
        ) from None


def _tell_of_nothing() -> None:
    """Tells, at the end, of a program that has a framework and no Keras.

    Nothing has divided its work.
    """
    found = [each for each in _OTHERS if each in sys.modules]
    if not found or any(each in sys.modules for each in _KERAS):
        return
    if os.environ.get("KERAS_RING_RANK", "0") == "0":
        sys.stderr.write(
            "keras_ring: WARNING: --auto trains models of Keras, and this "
            f"program has imported {found[0]} and no Keras: each rank has done "
            "all of its work. For a loop of its own, see keras_ring."
            f"{found[0]}.\n"
        )


def _next() -> None:
    """Runs the `sitecustomize` that this one hides, under its own name."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(module)


# Restores the path, for code that inspects it. Children find the directory in
# PYTHONPATH, because the program may be one of them.
sys.path[:] = [each for each in sys.path if each != _DIRECTORY]
if os.environ.get("KERAS_RING_AUTO", "0") not in ("", "0"):
    sys.meta_path.insert(0, _Finder())
if __name__ == "sitecustomize":
    _next()
