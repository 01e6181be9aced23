"""Changes of TensorFlow and Keras that a job needs.

They are made when the program has imported them, before or after `init()`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from keras_ring import errors
from keras_ring._typing import Callback
from keras_ring.core import (
    arena,
    import_hooks,
    installs,
    job,
    json_logs,
    native,
    notices,
    topology,
)


def register() -> None:
    """Makes these changes at the start of each job. One call is enough."""
    installs.before_start(_check_tensorflow)
    installs.on_start(_follow_imports)


def _check_tensorflow() -> None:
    """Raises an error if keras_ring was built for another TensorFlow.

    Raises:
        BuildMismatchError: If the program has imported such a TensorFlow.
    """
    if sys.modules.get("tensorflow") is not None:
        from keras_ring.tensorflow import libraries

        libraries.ops()


def _follow_imports() -> None:
    import_hooks.frameworks.when_idle(make_changes)


def make_changes() -> None:
    """Makes the changes in TensorFlow and Keras, if they are imported.

    To do it again changes nothing.
    """
    if not topology.is_initialized():
        return
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None and "keras" not in sys.modules:
        return
    try:
        from keras_ring.keras.backends import which
    except errors.ConfigurationError as error:
        _refuse_training(str(error))
        return
    framework = which.framework()
    if framework == "tensorflow":
        version = sys.modules["tensorflow"].__version__
        if mismatch := native.mismatch_with(version):
            _refuse_training(mismatch)
            return
        _install_in_tensorflow()
    _install_in_keras(framework)
    # Leave the job before the exit handlers of the imported modules run.
    job.leave_first()


def _install_in_tensorflow() -> None:
    from keras_ring.tensorflow import op_errors

    op_errors.install()
    json_logs.format_new_handlers()
    if topology.local_size() > 1 and arena.refusal():
        notices.warn_once(
            "tensors are copied on their way to other ranks of this host: "
            f"{arena.refusal()}; {arena.remedy()}."
        )


def _install_in_keras(framework: str) -> None:
    # Installed now, because the creation of a callback would be too late: in
    # `model.fit(...)`, `fit` is looked up before its arguments are evaluated.
    from keras_ring.keras.fit import watching

    watching.install(_progress)
    if framework == "tensorflow":
        from keras_ring.keras.lanes import compiler_choice

        compiler_choice.install(_xla_can_compile)
    elif framework == "jax":
        from keras_ring.keras.lanes import jax_trainer

        jax_trainer.install()
    if topology.stays_alone():
        return
    # For programs that forget to make anything distributed.
    from keras_ring.keras.fit import one_writer, own_files, terminate_on_nan
    from keras_ring.keras.model import synchronized_normalization
    from keras_ring.keras.optimizer import reduction_guard

    reduction_guard.install()
    terminate_on_nan.install()
    one_writer.install()
    own_files.install()
    synchronized_normalization.install()
    if topology.is_elastic() and framework == "tensorflow":
        from keras_ring.keras.elastic import joined_fit

        joined_fit.install()


def _xla_can_compile() -> bool:
    """Returns whether XLA can compile collectives: for the CPU alone.

    A model that Keras would have compiled for a GPU could not train. With
    `jit_compile=True` it ends in an error that says so, for the program has
    asked for it.
    """
    if not topology.is_initialized():
        return True
    if topology.is_elastic():
        # It cannot compile whether a step counts.
        return False
    tensorflow: Any = sys.modules["tensorflow"]
    devices = [
        device.name.removeprefix("/physical_device:")
        for device in tensorflow.config.get_visible_devices()
        if device.device_type != "CPU"
    ]
    if devices:
        notices.say(
            'XLA does not compile this model (`jit_compile` is "auto"): '
            f"keras_ring's collectives cannot be compiled for {devices[0]}."
        )
    return not devices


def _progress() -> Callback:
    """Returns a callback that shows the progress of several ranks' `fit`."""
    from keras_ring.keras.callbacks.progress import Progress

    return Progress()


_REFUSED = "_keras_ring_refused"


def _refuse_training(why: str) -> None:
    """Makes `fit` and `train_on_batch` of Keras raise an error.

    Without the error, each rank would train a model of its own unnoticed.
    """
    keras: Any = sys.modules.get("keras")
    if keras is None or topology.stays_alone():
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
        if topology.is_initialized() and not topology.stays_alone():
            raise errors.ConfigurationError(why)
        return method(*args, **kwargs)

    return refused
