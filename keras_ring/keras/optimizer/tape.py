"""A gradient tape that reduces gradients over all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from keras_ring._typing import Gradient, Layer, Structure, Tensor, Variable
from keras_ring.core import reduce_ops, topology
from keras_ring.core.docstrings import described
from keras_ring.core.horovod_arguments import takes_horovods
from keras_ring.core.process_sets import (
    ProcessSet,
    global_process_set,
    shares_nothing,
)
from keras_ring.keras.backends.which import is_keras2
from keras_ring.keras.optimizer import (
    initial_values,
    reduction_guard,
    tape_marks,
    weighted_losses,
)
from keras_ring.keras.optimizer.local_variables import LocalVariables
from keras_ring.keras.optimizer.mixin import distributed_settings
from keras_ring.keras.optimizer.reduction import (
    ReductionSettings,
    gradient_names,
    reduce_gradients,
)
from keras_ring.tensorflow import commits
from keras_ring.tensorflow.autograph import do_not_convert
from keras_ring.tensorflow.compression import Compression, Compressor
from keras_ring.tensorflow.sparse import map_gradient


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """A `tf.GradientTape` that reduces gradients over all ranks.

    It wraps a tape, before or after that one has recorded, and has all of its
    methods. Only `gradient` is different. `jacobian` and `batch_jacobian` are
    those of this rank alone, and the inner tape still returns local gradients.

    An optimizer that applies the gradients must not be a
    `DistributedOptimizer`: it would reduce them again, which is an error.

    Args:
        tape: A `tf.GradientTape`.
        op: How gradients are combined: `kr.Average`, `kr.Sum`, `kr.Min`,
            `kr.Max`, `kr.Product` or `kr.Adasum`. Defaults to `kr.Average`.
        compression: The number format of gradients on the wire. Defaults to
            `kr.Compression.none`.
        sparse_as_dense: Boolean. If `True`, `tf.IndexedSlices` are made dense
            and summed, otherwise their rows are gathered. Defaults to
            `False`.
        gradient_predivide_factor: Float. With `kr.Average`, gradients are
            divided by this before the sum and by the rest of the number of
            ranks after it. Defaults to `1.0`.
        groups: Gradients that are reduced together or not at all: a number of
            groups to make, or a list of lists of variables. Defaults to
            `None`.
        process_set: A `kr.ProcessSet`. Only its ranks take part; others keep
            their own gradients. Defaults to all ranks.
        scale_local_gradients: Boolean. With `kr.Average`, gradients of
            variables that were registered by `register_local_source` are
            divided by the number of ranks, as their part in the average of
            the losses is. Defaults to `True`.
        weighted: Boolean. With `kr.Average`, whether ranks are weighted by the
            divisors of their losses, such as the number of tokens that are not
            masked, so that the result is the mean over the whole batch. It
            works for losses of `keras.losses` that are computed inside of
            `with` this tape; for others, pass the weight to `gradient`.
            Defaults to `False`.
        elastic: Boolean, whether the training goes on without ranks that are
            lost, in a job that `keras-ring run --elastic` has started. An
            optimizer of Keras 3 then leaves out a step that does not count on
            all ranks that are left; its gradients are zeros on all of them.
            Defaults to `None`, which means: in such a job.

    Example:
    ```python
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    tape = kr.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    ```
    """

    @takes_horovods(
        "device_dense device_sparse compression sparse_as_dense op "
        "gradient_predivide_factor num_groups groups process_set "
        "scale_local_gradients"
    )
    def __init__(
        self,
        tape: tf.GradientTape,
        op: reduce_ops.ReduceOp = reduce_ops.Average,
        *,
        compression: Compressor = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        groups: int | Sequence[Sequence[Variable]] | None = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        weighted: bool = False,
        elastic: bool | None = None,
    ) -> None:
        if not isinstance(tape, tf.GradientTape):
            raise TypeError(
                "`DistributedGradientTape` is put around a `tf.GradientTape`. "
                f"Received: tape={tape!r}"
            )
        if isinstance(tape, DistributedGradientTape):
            raise ValueError(
                "This tape is a `DistributedGradientTape` already, and would "
                "reduce its gradients twice. Wrap a tape once, with all "
                "settings."
            )
        # `super().__init__` would make a second, empty tape.
        self._local_tape = tape
        self._settings = ReductionSettings(
            op=op,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            groups=groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
            weighted=weighted,
            elastic=_can_be_elastic() if elastic is None else elastic,
        )
        self._weighting = weighted_losses.of_settings(self._settings)
        self._entered = contextlib.ExitStack()
        self._local_variables = LocalVariables()
        reduction_guard.install()

    @classmethod
    def of_settings(
        cls,
        tape: tf.GradientTape,
        settings: ReductionSettings,
        local: LocalVariables,
    ) -> DistributedGradientTape:
        """Makes a tape that reduces as an optimizer does.

        Args:
            tape: A `tf.GradientTape`.
            settings: The `ReductionSettings` of the optimizer.
            local: The variables whose gradients it does not reduce.
        """
        made = cls(tape, settings.op, process_set=settings.process_set)
        made._settings = settings
        made._local_variables = local
        return made

    def __getattr__(self, name: str) -> Any:
        # Other attributes are the state of a tape, which the inner tape has.
        if name in ("_local_tape", "_local_variables"):
            raise AttributeError(name)
        return getattr(self._local_tape, name)

    def __enter__(self) -> DistributedGradientTape:
        self._local_tape.__enter__()
        if self._weighting is not None:
            weighted_losses.install(distributed_settings)
            self._entered.enter_context(
                weighted_losses.weighting(self._weighting)
            )
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered.close()
        self._local_tape.__exit__(*exception)

    def watch(self, tensor: Tensor) -> None:
        """As in `tf.GradientTape`."""
        self._local_tape.watch(tensor)

    def watched_variables(self) -> tuple[Variable, ...]:
        """As in `tf.GradientTape`."""
        found: tuple[Variable, ...] = self._local_tape.watched_variables()
        return found

    def stop_recording(self) -> AbstractContextManager[None]:
        """As in `tf.GradientTape`."""
        found: AbstractContextManager[None] = self._local_tape.stop_recording()
        return found

    def reset(self) -> None:
        """As in `tf.GradientTape`."""
        self._local_tape.reset()

    def jacobian(self, *args: Any, **kwargs: Any) -> Structure:
        """As in `tf.GradientTape`: the Jacobian on this rank alone."""
        return self._local_tape.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Tensor:
        """As in `tf.GradientTape`: the Jacobian on this rank alone."""
        return self._local_tape.batch_jacobian(*args, **kwargs)

    def register_local_source(self, var: Variable) -> None:
        """Excludes the gradients of a variable from the reduction.

        The variable is trained on this rank's data alone, and its value differs
        between ranks. It must be registered on all ranks before `gradient`.

        Args:
            var: A variable.
        """
        self._local_variables.add(var)

    def register_local_layers(self, layers: Layer | Iterable[Layer]) -> None:
        """Excludes the gradients of the weights of layers from the reduction.

        Args:
            layers: A layer, or a list of layers. They may have no weights
                yet.
        """
        if not isinstance(layers, Iterable):
            layers = [layers]
        for layer in layers:
            self._local_variables.add_layer(layer)

    @do_not_convert
    def gradient(
        self,
        target: Structure,
        sources: Structure,
        output_gradients: Structure = None,
        unconnected_gradients: object = tf.UnconnectedGradients.NONE,
        *,
        weight: Tensor = None,
    ) -> Structure:
        """Computes gradients and reduces them over all ranks.

        All ranks must call this for the same sources in the same order.

        Args:
            target: As in `tf.GradientTape.gradient`.
            sources: A nested structure of variables and tensors.
            output_gradients: As in `tf.GradientTape.gradient`.
            unconnected_gradients: As in `tf.GradientTape.gradient`.
            weight: A scalar, the number by which this rank has divided
                `target`, such as the sum of a mask. It is the weight of this
                rank in the average. Do not pass it if a tape with
                `weighted=True` knows the divisor of the loss.

        Returns:
            A structure like `sources`, the same on all ranks except for local
            sources.

        Raises:
            ValueError: If the weight is unknown to a tape with
                `weighted=True`, or if both the loss and `weight` give one.
        """
        self._check_weight(weight)
        gradients = self._local_tape.gradient(
            target, sources, output_gradients, unconnected_gradients
        )
        flat_sources = tf.nest.flatten(sources)
        flat_gradients = tf.nest.flatten(gradients)
        if weight is not None:
            flat_gradients = self._weighted(flat_gradients, weight)
        updated = [
            source
            for gradient, source in zip(
                flat_gradients, flat_sources, strict=True
            )
            if gradient is not None
        ]
        with initial_values.compared(
            updated,
            self._settings.process_set,
            self._local_variables,
            grace=True,
        ):
            # Ranks agree on the paths of variables when they compare them.
            names = gradient_names(flat_sources)
            group = self._commit_group(names)
            reduced = reduce_gradients(
                flat_gradients,
                flat_sources,
                self._settings,
                names,
                local=self._local_variables,
                commit_group=group,
            )
        committed = None
        if group:
            committed = commits.committed(group, reduced)
            reduced = commits.zeros_unless(committed, reduced)
        tape_marks.mark(
            flat_sources,
            reduced,
            tape_marks.ReducedBy(
                self._settings.process_set, self._local_variables
            ),
            committed,
        )
        return tf.nest.pack_sequence_as(gradients, reduced)

    def _commit_group(self, names: Sequence[str]) -> str:
        """Returns the commit group of the gradients; `""` for none."""
        settings = self._settings
        if not names or not settings.elastic:
            return ""
        return "" if shares_nothing(settings.process_set) else names[0]

    def _check_weight(self, weight: Tensor) -> None:
        knows = getattr(self._weighting, "has_losses", False)
        if weight is None:
            if isinstance(self._weighting, weighted_losses.Unweighted):
                self._weighting.warn()
            if self._settings.weighted and not knows:
                raise ValueError(
                    "This tape has `weighted=True`, and saw no loss of "
                    "`keras.losses`. Compute the loss inside of `with "
                    "kr.DistributedGradientTape(tf.GradientTape(), "
                    "weighted=True) as tape:`, or give `gradient` what the "
                    "loss was divided by, as `weight`."
                )
        elif knows or self._settings.op is not reduce_ops.Average:
            raise ValueError(
                "`weight` is for `op=kr.Average`, and for losses whose weight "
                "the tape does not know. Received: "
                f"weight={weight!r}, op={self._settings.op!r}"
                + (", and a loss of `keras.losses`" if knows else "")
            )

    def _weighted(
        self, gradients: list[Gradient], weight: Tensor
    ) -> list[Gradient]:
        if shares_nothing(self._settings.process_set):
            return gradients
        factor = weighted_losses.factor_of(weight, self._settings.process_set)
        return [
            None
            if gradient is None
            else map_gradient(
                lambda values: values * tf.cast(factor, values.dtype), gradient
            )
            for gradient in gradients
        ]


def _can_be_elastic() -> bool:
    """Returns whether optimizers can leave out a step of a tape."""
    return (
        topology.is_elastic()
        and not is_keras2()
        and tf.compat.v1.executing_eagerly_outside_functions()
    )


@takes_horovods(
    "device_dense device_sparse compression sparse_as_dense op "
    "gradient_predivide_factor num_groups groups process_set local_layers "
    "scale_local_gradients"
)
@described
def PartialDistributedGradientTape(
    tape: tf.GradientTape,
    local_layers: Layer | Iterable[Layer] | None = (),
    op: reduce_ops.ReduceOp = reduce_ops.Average,
    **settings: Any,
) -> DistributedGradientTape:
    """Makes a tape that reduces all gradients but those of some layers.

    The weights of those layers are trained by each rank on its own data, and
    differ between ranks.

    Args:
        tape: A `tf.GradientTape`.
        local_layers: A layer, or a list of layers. They may have no weights
            yet.
        op: {{op}}
        **settings: The other arguments of `DistributedGradientTape`.

    Returns:
        A `DistributedGradientTape`.

    Example:
    ```python
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    tape = kr.PartialDistributedGradientTape(tape, local_layers=[adapter])
    ```
    """
    distributed = DistributedGradientTape(tape, op, **settings)
    if local_layers is not None:
        distributed.register_local_layers(local_layers)
    return distributed
