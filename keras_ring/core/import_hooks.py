"""Calls functions when the program has imported a framework.

So keras_ring can change TensorFlow and Keras without importing them before the
program does.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

Hook = Callable[[], None]


class ImportHooks:
    """Functions that wait for the imports of some modules.

    Args:
        modules: List of strings, the top-level modules to watch.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._at_end: dict[str, list[Hook]] = {}
        self._when_idle: list[Hook] = []
        self._lock = threading.Lock()
        self._num_running = 0
        # Threads that ask the other finders, and the modules they ask for.
        self._asking: set[tuple[int, str]] = set()

    def after(self, module: str, hook: Hook) -> None:
        """Calls a function as soon as a module is imported, or now if it is.

        Args:
            module: String, one of the watched modules.
            hook: Function to call. It must not import a module whose import is
                in progress.
        """
        if self._is_imported(module):
            hook()
            return
        self._at_end.setdefault(module, []).append(hook)
        self._watch()

    def when_idle(self, hook: Hook) -> None:
        """Calls a function whenever the import of a watched module has ended.

        It is called now if one of the modules is imported and no import is in
        progress, and after the import of each other module. If an import is
        part of another one, such as that of TensorFlow by Keras, or runs while
        another thread imports, it is called after the last of them has ended.
        Otherwise a function that imports one of the modules would find a part
        of it, or wait for a thread that waits for this one.

        Args:
            hook: Function to call. Registering it again calls it now, and has
                no other effect.
        """
        if hook not in self._when_idle:
            self._when_idle.append(hook)
            self._watch()
        if self._num_running == 0 and any(
            map(self._is_imported, self._modules)
        ):
            hook()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Calls no function of `when_idle` for the imports inside, but after.

        A module of keras_ring that imports a framework, and that these
        functions need, is imported inside.
        """
        self.begun()
        try:
            yield
        finally:
            self._end(any(map(self._is_imported, self._modules)))

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of the other finders, with a loader that reports."""
        if fullname not in self._modules:
            return None
        question = (threading.get_ident(), fullname)
        if question in self._asking:
            return None
        self._asking.add(question)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(question)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self)
        return spec

    def begun(self) -> None:
        """Records that the import of a module begins."""
        with self._lock:
            self._num_running += 1

    def ended(self, module: str, *, is_imported: bool) -> None:
        """Records that the import of a module has ended, and calls hooks."""
        if is_imported:
            for hook in self._at_end.pop(module, ()):
                hook()
        self._end(is_imported)

    def _end(self, is_imported: bool) -> None:
        with self._lock:
            self._num_running -= 1
            is_idle = self._num_running == 0
        if is_idle and is_imported:
            for hook in self._when_idle:
                hook()

    def _is_imported(self, module: str) -> bool:
        found = sys.modules.get(module)
        spec = getattr(found, "__spec__", None)
        return found is not None and not getattr(spec, "_initializing", False)

    def _watch(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)


class _Loader(importlib.abc.Loader):
    """A loader that calls another one, and reports begin and end of imports."""

    def __init__(
        self, loader: importlib.abc.Loader, hooks: ImportHooks
    ) -> None:
        self._loader = loader
        self._hooks = hooks

    def create_module(
        self, spec: importlib.machinery.ModuleSpec
    ) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Other code finds the original loader, as without this one.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._hooks.begun()
        is_imported = False
        try:
            self._loader.exec_module(module)
            is_imported = True
        finally:
            self._hooks.ended(module.__name__, is_imported=is_imported)


frameworks = ImportHooks(("tensorflow", "keras", "tf_keras"))
"""The hooks for the imports of TensorFlow and Keras."""
