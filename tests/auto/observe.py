"""Runs a script as `python script.py` would, and records what came of it.

`python -m tests.auto.observe OUT script.py [words]` writes
`OUT/rank.R.pickle`, also after an exception: the weights of all models that
were trained or asked, what their methods returned, and which files were opened
for writing. The script runs in `OUT/work`, which ranks share. It sees nothing
of this: no value and no order changes.
"""

import functools
import os
import pickle
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

FLOAT64_VARIABLE = "TESTS_AUTO_FLOAT64"
RANK_VARIABLE = "KERAS_RING_RANK"
WORK = "work"
# Methods of models whose results are recorded, in the order of the calls.
_METHODS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def plain(value: Any) -> Any:
    """Returns a value of nothing but containers, numbers and arrays."""
    import numpy as np

    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return np.asarray(value)


class Writes:
    """Notes which files below a folder this process opens for writing."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder) + os.sep
        self.paths: set[str] = set()
        sys.addaudithook(self._audit)

    def note(self, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # a descriptor, or a file that is open
        real = os.path.realpath(os.fsdecode(path))
        if real.startswith(self._folder):
            self.paths.add(real[len(self._folder) :])

    def _audit(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self.note(path)
        elif event == "os.rename":
            self.note(arguments[1])


class Recorder:
    """Wraps methods of Keras, thinly, and keeps what is seen there."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._models: list[Any] = []
        self._used: set[int] = set()
        self._optimizers: list[Any] = []
        self._calls: list[tuple[str, Any]] = []
        self._inside: list[str] = []

    def install(self) -> None:
        import h5py
        import keras
        from keras.src.optimizers import base_optimizer

        self._wrap_new(keras.layers.Layer, keras.Model)
        for name in _METHODS:
            self._wrap_method(keras.Model, name)
        self._wrap_build(base_optimizer.BaseOptimizer)
        self._wrap_h5(h5py.File)

    def _wrap_new(self, layer_class: Any, model_class: Any) -> None:
        new = layer_class.__new__

        @functools.wraps(new)
        def wrapper(cls, *args, **kwargs):
            layer = new(cls, *args, **kwargs)
            if isinstance(layer, model_class):
                self._models.append(layer)
            return layer

        layer_class.__new__ = staticmethod(wrapper)

    def _wrap_method(self, model_class: Any, name: str) -> None:
        method = getattr(model_class, name)

        @functools.wraps(method)
        def wrapper(model, *args, **kwargs):
            # Keras validates through `evaluate`, and what `fit` returns has
            # it. A method that another one calls is how this one is made.
            own = kwargs.get("_use_cached_eval_dataset", False)
            told = not own and set(self._inside) <= {"fit"}
            self._inside.append(name)
            try:
                result = method(model, *args, **kwargs)
            finally:
                self._inside.pop()
            if told:
                self._used.add(id(model))
                seen = result.history if name == "fit" else result
                self._calls.append((name, plain(seen)))
            return result

        setattr(model_class, name, wrapper)

    def _wrap_build(self, optimizer_class: Any) -> None:
        build = optimizer_class.build

        @functools.wraps(build)
        def wrapper(optimizer, variables):
            self._optimizers.append(optimizer)
            return build(optimizer, variables)

        optimizer_class.build = wrapper

    def _wrap_h5(self, file_class: Any) -> None:
        init = file_class.__init__

        @functools.wraps(init)
        def wrapper(file, name, mode="r", *args, **kwargs):
            if mode != "r":
                self._writes.note(name)
            return init(file, name, mode, *args, **kwargs)

        file_class.__init__ = wrapper

    def recording(self) -> dict[str, Any]:
        applied = [
            optimizer
            for optimizer in self._optimizers
            if int(optimizer.iterations.numpy()) > 0
        ]
        updated = {
            id(variable)
            for optimizer in applied
            for variable in optimizer._trainable_variables
        }
        models = {}
        for model in self._models:
            ids = tuple(id(weight) for weight in _weights(model))
            # A `Sequential` has another model inside, of the same weights.
            if id(model) in self._used or updated & set(ids):
                models.setdefault(ids or (id(model),), model)
        return {
            "models": [
                (
                    type(model).__name__,
                    [(w.name, w.numpy()) for w in _weights(model)],
                )
                for model in models.values()
            ],
            "optimizers": [
                (
                    type(optimizer).__name__,
                    int(optimizer.iterations.numpy()),
                    [v.numpy() for v in optimizer._trainable_variables],
                )
                for optimizer in applied
            ],
            "calls": self._calls,
            "writes": sorted(self._writes.paths),
            "reduced": _reduced(),
        }


def _weights(model: Any) -> list[Any]:
    # Models that were never finished have no list of layers.
    try:
        return list(model.weights)
    except (AttributeError, ValueError):
        return []


def _reduced() -> int:
    """How many tensors this rank has given to collectives."""
    ring = sys.modules.get("keras_ring")
    if ring is None or not ring.is_initialized():
        return 0
    return int(ring.metrics()["entries"])


def _run(script: Path, words: list[str]) -> None:
    sys.argv = [str(script), *words]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")


def main(arguments: list[str]) -> None:
    out, script = (Path(word).resolve() for word in arguments[:2])
    work = out / WORK
    work.mkdir(parents=True, exist_ok=True)
    os.chdir(work)
    rank = int(os.environ.get(RANK_VARIABLE, "0"))
    writes = Writes(work)
    recorder = Recorder(writes)
    # Whatever makes ranks of this process does so as Keras is imported.
    import keras

    if os.environ.get(FLOAT64_VARIABLE) == "1":
        keras.config.set_floatx("float64")
    recorder.install()
    error = None
    try:
        _run(script, arguments[2:])
    except BaseException as raised:
        kind = type(raised)
        if not (isinstance(raised, SystemExit) and raised.code in (None, 0)):
            error = {
                "class": f"{kind.__module__}.{kind.__qualname__}",
                "text": str(raised),
                "traceback": traceback.format_exc(),
            }
        raise
    finally:
        recording = {"error": error, **recorder.recording()}
        path = out / f"rank.{rank}.pickle"
        path.write_bytes(pickle.dumps(recording))


if __name__ == "__main__":
    main(sys.argv[1:])
