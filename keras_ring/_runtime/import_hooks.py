"""Calls functions when the program has imported a framework.

So what keras_ring does in TensorFlow and Keras needs neither before the
program does.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

Hook = Callable[[], None]


class ImportHooks:
    """Functions that wait for the imports of some modules.

    Args:
        modules: A list of strings, the top-level modules that are watched.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self._at_end: dict[str, list[Hook]] = {}
        self._when_idle: list[Hook] = []
        self._lock = threading.Lock()
        self._num_running = 0
        # Threads that ask the other finders.
        self._asking: set[tuple[int, str]] = set()

    def after(self, module: str, hook: Hook) -> None:
        """Calls a function as soon as a module is imported: now, if it is.

        Args:
            module: String, one of the modules that are watched.
            hook: It may import nothing that is being imported meanwhile.
        """
        if self._is_imported(module):
            hook()
            return
        self._at_end.setdefault(module, []).append(hook)
        self._watch()

    def when_idle(self, hook: Hook) -> None:
        """Calls a function whenever no import of the modules is under way.

        That is now, if one of them is imported, and at the end of the import
        of each other one. Of an import within another one, such as Keras' of
        TensorFlow, it is the end of the outer one, whichever thread it is in:
        a function that imports one of them would find half of it, or wait for
        a thread that waits for this one.

        Args:
            hook: Registering it again calls it now, and else changes nothing.
        """
        if hook not in self._when_idle:
            self._when_idle.append(hook)
            self._watch()
        if self._num_running == 0 and any(
            map(self._is_imported, self._modules)
        ):
            hook()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns what the other finders find, which then tells of its end."""
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
        """Takes note that the import of a module begins."""
        with self._lock:
            self._num_running += 1

    def ended(self, module: str, *, is_imported: bool) -> None:
        """Takes note that the import of a module has ended."""
        if is_imported:
            for hook in self._at_end.pop(module, ()):
                hook()
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
    """Loads as another one does, and tells of it."""

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
        # As if we had never been there, for whoever looks.
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
"""What waits for TensorFlow and Keras."""
