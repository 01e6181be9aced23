"""Starts `--auto` in the Python programs of a rank.

Python imports a module of this name when it begins, and `keras-ring run --auto`
has put this directory first in its path. All that happens then is that a finder
is added; when the program has imported Keras or TensorFlow, keras_ring is
imported and takes over. In other programs nothing happens. A `sitecustomize`
that was there before runs as well.

Any Python may get here, so its words are those that old ones know.
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
# The `keras-ring` command itself, which a rank may run.
_COMMAND = "keras_ring.cli.cli"


class _Finder:
    """Sees the imports of Keras and TensorFlow, until the first is complete.

    A thread that imports a module holds its lock, and Keras imports TensorFlow.
    So what is started here, which imports both, must not wait for the lock of
    Keras while another thread has it and waits for that of TensorFlow.
    """

    def __init__(self) -> None:
        # Thread -> what it imports of these, the outermost first.
        self._imports: dict[int, list[str]] = {}
        # Threads that ask the other finders.
        self._asking: set[tuple[int, str]] = set()
        self._begun = False
        self._failure: BaseException | None = None

    def find_spec(
        self,
        fullname: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        """Returns what the other finders find, which then tells of its end."""
        if fullname != _TENSORFLOW and fullname not in _KERAS:
            return None
        question = (_thread.get_ident(), fullname)
        if question in self._asking or _COMMAND in sys.modules:
            return None
        if self._failure is not None:
            # The program has caught it: it must not train all the same.
            raise self._failure
        from importlib import util

        self._asking.add(question)
        try:
            if not self._begun:
                # It places TensorFlow's tensors, from the first one on.
                _starting()
            spec = util.find_spec(fullname)
        finally:
            self._asking.discard(question)
        if spec is not None:
            self._follow(spec)
        return spec

    def _follow(self, spec: "ModuleSpec") -> None:
        """Has a module tell when it has been executed."""
        loader: object = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return
        if isinstance(loader, type):
            return

        def exec_module(module: "ModuleType") -> None:
            # As if we had never been there, for whoever looks.
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
        # Keras is complete when that which imports it is.
        if not imports:
            self._after(module)

    def _after(self, module: "ModuleType") -> None:
        """A module is complete, and none that is not has imported it."""
        if module.__name__ == _TENSORFLOW:
            # Nobody need wait for its lock any more. In this order: a thread
            # that imports Keras now does not wait, or is seen below.
            vars(module.__spec__)["_initializing"] = False
        if module.__name__ != _KERAS[0] and self._is_importing_keras():
            # That thread starts, at the end of it.
            return
        if module.__name__ == _TENSORFLOW:
            from importlib import import_module

            # Whoever imports it, another thread perhaps, starts.
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
            # By what was started itself, or by another thread.
            return
        self._begun = True
        try:
            _starting().start()
        except BaseException as error:
            self._failure = error
            # Whoever catches it and imports them again is told again.
            for name in (_TENSORFLOW, *_KERAS):
                sys.modules.pop(name, None)
            raise
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def _starting() -> "ModuleType":
    from importlib import import_module

    try:
        return import_module("keras_ring._auto.starting")
    except ModuleNotFoundError as error:
        if error.name != "keras_ring":
            raise
        raise RuntimeError(
            "keras-ring run --auto needs keras_ring, which "
            f"{sys.executable} does not have: install it there, or run the "
            "Python that has it."
        ) from None


def _next() -> None:
    """Runs the `sitecustomize` that ours hides, in its own name."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = sys.modules[__name__] = module_from_spec(spec)
    spec.loader.exec_module(module)


# As if we had never been there, for whoever looks. Children see it in
# PYTHONPATH: the program may be one of them.
sys.path[:] = [each for each in sys.path if each != _DIRECTORY]
if os.environ.get("KERAS_RING_AUTO", "0") not in ("", "0"):
    sys.meta_path.insert(0, _Finder())
if __name__ == "sitecustomize":
    _next()
