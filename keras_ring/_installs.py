"""What begins in TensorFlow and Keras when a job starts.

It begins when the program has imported them, before or after `init()`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from keras_ring import errors
from keras_ring._runtime import (
    arena,
    import_hooks,
    json_logs,
    native,
    notices,
    topology,
)
from keras_ring._typing import Callback
from keras_ring.core import installs, job


def register() -> None:
    """Has it begin with each job from now on. Once is enough."""
    installs.before_start(_check_tensorflow)
    installs.on_start(_follow_imports)


def _check_tensorflow() -> None:
    """Raises an error if keras_ring was built for another TensorFlow.

    Raises:
        BuildMismatchError: If the program has imported that one.
    """
    if "tensorflow" in sys.modules:
        native.tf_ops()


def _follow_imports() -> None:
    import_hooks.frameworks.when_idle(_install)


def _install() -> None:
    """Has TensorFlow and Keras do what a rank needs, if they are there."""
    if not topology.is_initialized():
        return
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None and "keras" not in sys.modules:
        return
    try:
        from keras_ring._keras import which  # noqa: F401
    except errors.ConfigurationError as error:
        _refuse_training(str(error))
        return
    if mismatch := native.mismatch_with(sys.modules["tensorflow"].__version__):
        _refuse_training(mismatch)
        return
    _install_in_tensorflow()
    _install_in_keras()
    # What was imported takes itself apart at the end of the process.
    job.leave_first()


def _install_in_tensorflow() -> None:
    from keras_ring._runtime import op_errors

    op_errors.install()
    json_logs.format_new_handlers()
    if topology.local_size() > 1 and arena.refusal():
        notices.warn_once(
            "tensors are copied on their way to other ranks of this host: "
            f"{arena.refusal()}; {arena.remedy()}."
        )


def _install_in_keras() -> None:
    # Not by a callback, which would come too late: in `model.fit(...)`, `fit`
    # is looked up before what is in the parentheses.
    from keras_ring._fit import watching

    watching.install(_progress)
    if topology.size() == 1:
        return
    # For programs that forget to make anything distributed.
    from keras_ring._fit import one_writer, own_files, terminate_on_nan
    from keras_ring._model import synchronized_normalization
    from keras_ring._training import reduction_guard

    reduction_guard.install()
    terminate_on_nan.install()
    one_writer.install()
    own_files.install()
    synchronized_normalization.install()


def _progress() -> Callback:
    """Returns what shows a `fit` of several ranks."""
    from keras_ring.callbacks.progress import Progress

    return Progress()


_REFUSED = "_keras_ring_refused"


def _refuse_training(why: str) -> None:
    """Has `fit` and `train_on_batch` of Keras raise an error.

    Each rank would train a model of its own, and nothing would look wrong.
    """
    keras: Any = sys.modules.get("keras")
    if keras is None or topology.size() == 1:
        return
    for name in ("fit", "train_on_batch"):
        method = getattr(keras.Model, name)
        if not hasattr(method, _REFUSED):
            refused = _refused(method, why)
            setattr(refused, _REFUSED, True)
            setattr(keras.Model, name, refused)


def _refused(method: Callable[..., Any], why: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def refused(*args: Any, **kwargs: Any) -> Any:
        if topology.is_initialized() and topology.size() > 1:
            raise errors.ConfigurationError(why)
        return method(*args, **kwargs)

    return refused
