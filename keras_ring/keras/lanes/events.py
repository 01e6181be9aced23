"""Events in programs that keras_ring takes part in, each named once.

The tables of the lanes tell which functions an event is bound to. A subscriber
(`hooks`) takes such a function and returns a wrapper of it. Where functions of
Keras 2 and 3 differ too much for that, the text below an event tells what it is
called with instead, and the lanes adapt it.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Event:
    """An event in a program that trains.

    Attributes:
        name: String, the name.
        when: String, a sentence in Markdown that tells when it happens.
    """

    name: str
    when: str


# --- A model ---

FIT_RUNS = Event("fit_runs", "`fit` trains a model")
BATCH_TRAINED = Event("batch_trained", "`train_on_batch` trains a model")
BATCH_TESTED = Event("batch_tested", "`test_on_batch` evaluates a model")
EVALUATED = Event("evaluated", "`evaluate` evaluates a model")
PREDICTED = Event("predicted", "`predict` predicts with a model")
MODEL_SAVED = Event("model_saved", "a method saves a model or its weights")
MODEL_EXPORTED = Event(
    "model_exported", "a model is exported, or a function saves it"
)
COMPILER_CHOSEN = Event(
    "compiler_chosen", "Keras chooses whether XLA compiles a model"
)

# --- A pass over data, its steps and results ---

ITERATOR_MADE = Event(
    "iterator_made", "Keras makes the iterator over batches of a call"
)
"""Called with this object, before it is read. What is read may be changed."""
PASS_BEGINS = Event("pass_begins", "a pass over the data begins")
"""Called with what was returned for `ITERATOR_MADE`, or `None`."""
STEP_TRACED = Event("step_traced", "the training step of a model is traced")
"""Called with the model and its `train_step`; returns the function that Keras
calls in its place."""
STEP_RUN = Event(
    "step_run",
    "the training step of a model runs, or is traced, on PyTorch or JAX",
)
"""Its method takes the batch as the last argument."""
STEP_MADE = Event("step_made", "Keras on JAX makes a function of a step")
BATCHES_MADE = Event(
    "batches_made", "Keras on JAX makes an iterator for a pass over the data"
)
MODEL_BUILT = Event(
    "model_built", "Keras on JAX builds a model from a batch of the data"
)
SEED_DRAWN = Event("seed_drawn", "`keras.random` draws a seed")
"""Called with the seed; returns that of this rank. From then on ranks share the
state of `keras.random`, and draw the same numbers between steps."""
RESULTS_MADE = Event("results_made", "a pass has ended and has results")
METRICS_RESET = Event("metrics_reset", "the metrics of a model are reset")

# --- Losses, metrics and layers ---

LOSS_CALLED = Event("loss_called", "Keras calls a loss of a compiled model")
"""Called in place of a loss, with the loss and its arguments, if it is not
known that the loss computes each row by itself. In Keras 2 the masks are
already applied to the weights then, and also still attached to the outputs."""
LOSS_COMPUTED = Event(
    "loss_computed", "a model computes its total loss on PyTorch or JAX"
)
LOSS_REDUCED = Event("loss_reduced", "a loss of rows is reduced to a scalar")
"""Called with the loss; a function that returns the scalar that it was divided
by, or `None` if the loss is a sum; and a boolean, whether this divisor depends
on the data and not only on their number. Returns the loss."""
LOSS_MASKED = Event("loss_masked", "a mask is applied to a loss of rows")
"""Called without arguments; returns whether the loss is of a part of a batch,
which may have nothing to divide by."""
METRICS_UPDATED = Event(
    "metrics_updated", "Keras updates metrics of a compiled model"
)
"""Called with a list of metrics and their arguments, to update them. In Keras 2
it is one metric, of which it is not known that it counts row by row."""
MEAN_UPDATED = Event("mean_updated", "a `Mean` or `Sum` is updated")
"""Called with the metric, values and weights; returns the values and weights
that it is updated with."""
METRIC_MADE = Event("metric_made", "a metric is made")
MOMENTS = Event("moments", "a layer computes the moments of a batch")
"""Called with the layer, inputs, axes and mask; returns mean, variance and
number of elements, or `None` if the layer is to compute its own."""
SYNCHRONIZED_MOMENTS = Event(
    "synchronized_moments", "a layer computes moments with `synchronized=True`"
)
"""As for `MOMENTS`, without the number."""
KERNEL_CALLED = Event(
    "kernel_called", "`tf.nn` calls a kernel that convolves or pools"
)

# --- Gradients and updates ---

GRADIENT_TAKEN = Event("gradient_taken", "a tape computes gradients")
APPLIED = Event("applied", "an optimizer of Keras 3 applies gradients")
PAIRS_APPLIED = Event(
    "pairs_applied", "an optimizer applies pairs of gradients and variables"
)
SCALED_APPLIED = Event(
    "scaled_applied", "a `LossScaleOptimizer` of Keras 3 applies gradients"
)
SCALED_STATE_APPLIED = Event(
    "scaled_state_applied",
    "a `LossScaleOptimizer` of Keras 3 applies gradients to values",
)
SCALED_PAIRS_APPLIED = Event(
    "scaled_pairs_applied", "a `LossScaleOptimizer` of Keras 2 applies pairs"
)
OPTIMIZER_MADE = Event(
    "optimizer_made", "an optimizer of PyTorch itself is made"
)
ASSIGNED = Event("assigned", "a variable of TensorFlow gets a value")

# --- Callbacks ---

CALLBACKS_TOLD = Event("callbacks_told", "Keras tells its callbacks something")
CALLBACKS_ADDED = Event(
    "callbacks_added", "Keras adds its own callbacks to those of the program"
)
WRITER_CALLED = Event(
    "writer_called", "Keras calls a callback that writes files or a line"
)
WRITER_SET = Event("writer_set", "such a callback gets its model")
LOSS_LOOKED_AT = Event(
    "loss_looked_at", "`TerminateOnNaN` looks at the loss of a batch"
)
LOSSES_LOOKED_AT = Event(
    "losses_looked_at", "`TerminateOnNaN` hears of the end of an epoch"
)

# --- TensorFlow's functions and data ---

FUNCTION_CALLED = Event(
    "function_called", "a function of `tf.function` is called"
)
GRAPH_RUN = Event("graph_run", "a traced function runs")
"""Its method has `self.graph`, which stands for what was traced."""
ITERATOR_READ = Event("iterator_read", "an iterator over a dataset is read")
BATCHES_READ = Event(
    "batches_read", "Keras reads batches where TensorFlow does not"
)
DATASET_CACHED = Event("dataset_cached", "a dataset is cached")

# --- Files ---

IMAGE_SAVED = Event("image_saved", "Keras saves an image")
FILE_FETCHED = Event("file_fetched", "Keras fetches a file")
"""Called with the directory where Keras keeps files; returns a context."""
CHECKPOINT_SAVED = Event("checkpoint_saved", "TensorFlow saves a checkpoint")
CHECKPOINT_FILES = Event(
    "checkpoint_files", "TensorFlow changes the files of a checkpoint"
)
FILE_WRITTEN = Event("file_written", "TensorFlow writes a file as a whole")
FILE_OPENED = Event("file_opened", "TensorFlow opens a file")
FILE_CLOSED = Event("file_closed", "TensorFlow closes a file")
SUMMARIES_OPENED = Event("summaries_opened", "a writer of summaries is made")
PATH_CHANGED = Event("path_changed", "a program changes files or directories")

# --- What a program asks for ---

RANK_ASKED = Event("rank_asked", "a program asks for its rank")
STRATEGY_MADE = Event("strategy_made", "a strategy of `tf.distribute` is made")
GRAPHS_ASKED = Event("graphs_asked", "a program switches eager execution off")
INPUT_ASKED = Event("input_asked", "a program asks for a line of input")
