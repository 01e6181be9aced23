"""Errors about state that ranks cannot combine, with advice."""

from __future__ import annotations

import numpy as np

from keras_ring._typing import Model, Variable
from keras_ring.core import arrays, topology
from keras_ring.core.process_sets import global_process_set
from keras_ring.keras.agreement.difference import Difference
from keras_ring.keras.backends import backend
from keras_ring.unchanged import script
from keras_ring.unchanged.state_semantics import Values

# The number of ranks whose values are shown.
_SHOWN = 4
_INSTEAD = (
    "Reduce what it is made of in the step, by `kr.allreduce`, so that all "
    "ranks assign the same; or assign it outside of the step, as in a callback."
)


def shown(model: Model, variable: Variable) -> str:
    """Returns a text with the path of a variable and the layer that has it.

    Args:
        model: A `keras.Model`.
        variable: A `tf.Variable`.
    """
    path, layer = backend.variable_path(variable), None
    for each in model._flatten_layers():
        for own in each.variables:
            if backend.storage(own) is variable:
                # The innermost layer comes last.
                path, layer = backend.variable_path(own), each
    text = repr(str(path))
    return text if layer is None else f"{text} of layer {layer.name!r}"


def of_no_way(
    model: Model, variable: Variable, values: Values, number: int
) -> str:
    """Returns the error that values of parts do not make that of the whole.

    All ranks must call this.

    Args:
        model: A `keras.Model`.
        variable: A `tf.Variable`.
        values: The `Values` that are assigned to it.
        number: Integer, the number of the batch.
    """
    part = values.part.astype(np.float64).ravel()
    rows = arrays.gather_rows(part, "auto/state/values", global_process_set)
    index = int(np.argmax(np.nan_to_num(np.ptp(rows, axis=0))))
    on_ranks = [f"{each:.6g}" for each in rows[:_SHOWN, index]]
    if len(rows) > _SHOWN:
        on_ranks.append("...")
    whole = values.whole.astype(np.float64).ravel()[index]
    where = [int(i) for i in np.unravel_index(index, values.whole.shape)]
    return (
        f"{_step(model)} keeps {shown(model, variable)}, and what parts of "
        f"batch {number:,} leave in it does not make what the whole batch "
        f"leaves: {f'at {where} ' if where else ''}ranks 0 to "
        f"{topology.size() - 1}, whose parts have unequal numbers of rows, "
        f"assign {', '.join(on_ranks)}, and one process assigns {whole:.6g}. "
        "That is not the same on all, nor a mean, a sum, a maximum or a "
        "minimum over the rows. Keep sums and means, and compute from these "
        "variables, once they are assigned, what is neither (a ratio, a root, "
        f"a variance). {_INSTEAD}"
    )


def of_change(model: Model, variable: Variable, number: int) -> str:
    """Returns the error that a change of a variable cannot be observed.

    Args:
        model: A `keras.Model`.
        variable: A `tf.Variable`.
        number: Integer, the number of the batch.
    """
    return (
        f"{_step(model)} changes {shown(model, variable)} by something that is "
        "no `assign`, or in a function of its own (`tf.function`), and on "
        f"parts of batch {number:,} not as on the whole. Assign it by "
        f"`assign`, `assign_add` or `assign_sub` in the step itself. {_INSTEAD}"
    )


def of_other_assignments(model: Model, number: int) -> str:
    """Returns the error that a step assigns other variables on parts.

    Args:
        model: A `keras.Model`.
        number: Integer, the number of the batch.
    """
    return (
        f"{_step(model)} goes by its data in what it assigns: on parts of "
        f"batch {number:,} it assigns other variables than on the whole, or "
        "another number of times. Assign in each step (what is to stay as it "
        f"is, by `tf.where`). {_INSTEAD}"
    )


def of_trace(model: Model, variable: Variable) -> str:
    """Returns the error that a step does not assign as when it was examined.

    Args:
        model: A `keras.Model`.
        variable: A `tf.Variable`.
    """
    return (
        f"{_step(model)} keeps {shown(model, variable)}, which ranks put "
        "together where it is assigned. But it is assigned in a branch or a "
        "loop (`tf.cond`, `tf.while_loop`), in a function that was traced "
        "before, or not as often as in a step that runs eagerly. Assign it "
        "once in each step, outside of these (what is to stay as it is, by "
        f"`tf.where`). {_INSTEAD}"
    )


def of_difference(model: Model, when: str, apart: Difference) -> str:
    """Returns the error that ranks have different state.

    Args:
        model: A `keras.Model`.
        when: String, the time, such as "After epoch 3".
        apart: The `Difference` between ranks.
    """
    what = (
        f"different numbers of variables ({apart.counts})"
        if apart.counts
        else f"different values of {apart.path!r}, of which {apart.ranks}"
    )
    return (
        f"{when} of model {model.name!r} ranks have {what}. It is not trained, "
        "and something changes it on some ranks alone, or goes by the rows of "
        "one rank: the step, on batches that were not compared; an evaluation, "
        "in which each rank has batches of its own (change it in training "
        f"alone: `if training`); a callback. {_INSTEAD}"
    )


def _step(model: Model) -> str:
    return f"The step of model {model.name!r} ({script.line()})"
