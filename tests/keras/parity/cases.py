"""The rows of the table: one catalogue, for the test and for the command."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import keras_ring as kr
from tests.keras.parity import models, programs
from tests.keras.parity.fitting import Fit
from tests.keras.parity.models import BACKEND, BATCH_SIZE, STEPS

SCHEDULES = keras.optimizers.schedules
SGD, Adam = keras.optimizers.SGD, keras.optimizers.Adam


@dataclasses.dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        name: String, the feature.
        train: Trains for 30 steps; returns the variables.
        policy: The dtype policy.
        rounded_to: The coarsest dtype that gradients pass through.
        collectives: How many tensors are reduced with TensorFlow, if the case
            tells.
        of: The frameworks that Keras has it on.
    """

    name: str
    train: Callable[[], list[Any]]
    policy: str = "float64"
    rounded_to: str = "float64"
    collectives: int | None = None
    of: tuple[str, ...] = ("tensorflow", "torch", "jax")

    @property
    def bound(self):
        """The largest relative difference of weights.

        Sums in another order: a batch has so many terms, and so many updates
        follow each other. Half precision, whose errors are far larger: the
        two layers round about eight times in a step, forward and backward,
        and that much of what is trained may be different.
        """
        if self.rounded_to in ("float16", "bfloat16"):
            bits = {"float16": 11, "bfloat16": 8}[self.rounded_to]
            return 8 * 2.0**-bits
        coarsest = self.rounded_to
        if BACKEND != "tensorflow":
            # There operations of Keras compute in float32, whatever the policy.
            coarsest = "float32"
        return STEPS * BATCH_SIZE * np.finfo(coarsest).eps


def shipped():
    """Returns what makes one of each optimizer of Keras, by name."""
    names = [
        name
        for name in dir(keras.optimizers)
        if isinstance(getattr(keras.optimizers, name), type)
        and issubclass(getattr(keras.optimizers, name), keras.Optimizer)
        and name not in ("Optimizer", "LossScaleOptimizer", "MultiOptimizer")
    ]
    makes = {name: getattr(keras.optimizers, name) for name in names}
    makes["LossScaleOptimizer"] = lambda: keras.optimizers.LossScaleOptimizer(
        Adam()
    )
    makes["MultiOptimizer"] = lambda: keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(SGD(), {".*bias": Adam()})
    )
    return makes


VARIABLES = 4  # of the classifier
# Programs of TensorFlow.
_TENSORFLOW = ("tensorflow",)


def _groups(model):
    return {"groups": [model.weights[:1], model.weights[2:]]}


def _summed():
    """An average of one process is a sum of ranks' with less of a rate."""
    return SGD(0.05 / kr.size(), momentum=0.9)


def _accumulates(average):
    """`backward_passes_per_step=3`, in one process by Keras' own means."""

    def make():
        if kr.size() > 1:
            return SGD(0.05)
        # Keras averages; a sum is the same as three times the rate.
        rate = 0.05 if average else 0.15
        return SGD(rate, gradient_accumulation_steps=3)

    return Fit(
        make,
        {
            "backward_passes_per_step": 3,
            "average_aggregated_gradients": average,
        },
    )


def _of_two_outputs():
    x, y = models.make_data()
    number = x[:, :1] * x[:, 1:2]
    return x, {"classes": y, "number": number}


def _schedule(model):
    return [
        kr.callbacks.LearningRateScheduleCallback(
            0.1, lambda epoch: 0.5**epoch, steps_per_epoch=STEPS // 3
        )
    ]


def _data_of_one_epoch():
    return models.make_data(STEPS // 3 * BATCH_SIZE)


def _weighted():
    return *models.make_data(), models.make_weights()


def _loss_scaled(inner=lambda: SGD(0.05, momentum=0.9)):
    return keras.optimizers.LossScaleOptimizer(inner())


def _accumulating():
    return SGD(0.05, momentum=0.9, gradient_accumulation_steps=3)


def _half(name, train, policy="mixed_float16", **settings):
    return Case(name, train, policy, policy.removeprefix("mixed_"), **settings)


_ALL = [
    *(Case(name, Fit(make)) for name, make in shipped().items()),
    Case("Adam, float32", Fit(Adam), "float32", "float32"),
    # Arguments of DistributedOptimizer.
    Case("op=Sum", Fit(_summed, {"op": kr.Sum})),
    Case(
        "gradient_predivide_factor",
        Fit(settings={"gradient_predivide_factor": 3.0}),
    ),
    Case("groups=2", Fit(settings={"groups": 2}), collectives=2 * STEPS),
    Case("groups, lists of variables", Fit(settings=_groups)),
    Case("process_set, of each rank", programs.alone),
    Case(
        "compression=fp16",
        Fit(settings={"compression": kr.Compression.fp16}),
        rounded_to="float16",
    ),
    Case(
        "compression=bf16",
        Fit(settings={"compression": kr.Compression.bf16}),
        rounded_to="bfloat16",
    ),
    Case(
        "rows of embeddings", Fit(model=models.reader, data=models.make_words)
    ),
    Case(
        "sparse_as_dense",
        Fit(
            settings={"sparse_as_dense": True},
            model=models.reader,
            data=models.make_words,
        ),
    ),
    Case(
        "backward_passes_per_step, summed",
        _accumulates(average=False),
        collectives=VARIABLES * STEPS // 3,
    ),
    Case(
        "backward_passes_per_step, averaged",
        _accumulates(average=True),
        collectives=VARIABLES * STEPS // 3,
    ),
    # What Keras' optimizers do besides.
    Case("nothing special", Fit(), collectives=VARIABLES * STEPS),
    Case(
        "gradient_accumulation_steps",
        Fit(_accumulating),
        collectives=VARIABLES * STEPS // 3,
    ),
    Case("clipnorm", Fit(lambda: SGD(0.2, clipnorm=0.1))),
    Case("global_clipnorm", Fit(lambda: SGD(0.2, global_clipnorm=0.1))),
    Case("clipvalue", Fit(lambda: SGD(0.2, clipvalue=0.02))),
    Case(
        "use_ema",
        Fit(
            lambda: Adam(
                use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5
            )
        ),
    ),
    Case("weight_decay", Fit(lambda: SGD(0.05, weight_decay=0.1))),
    # Learning rates.
    Case(
        "LearningRateSchedule",
        Fit(lambda: SGD(SCHEDULES.CosineDecay(0.1, STEPS))),
    ),
    Case(
        "kr.schedules.Warmup",
        Fit(
            lambda: SGD(
                kr.schedules.Warmup(
                    SCHEDULES.ExponentialDecay(0.1, 10, 0.5), 10
                )
            )
        ),
    ),
    Case("LearningRateWarmupCallback", programs.warm_up),
    Case(
        "LearningRateScheduleCallback",
        Fit(
            data=_data_of_one_epoch,
            fit={"epochs": 3},
            callbacks=_schedule,
        ),
    ),
    # Ways to run.
    Case(
        "steps_per_execution",
        Fit(compile={"steps_per_execution": 5}),
        collectives=VARIABLES * STEPS,
        of=("tensorflow", "jax"),
    ),
    Case("jit_compile", Fit(compile={"jit_compile": True})),
    Case("run_eagerly", Fit(compile={"run_eagerly": True})),
    # Precision.
    _half("mixed_float16", Fit()),
    _half("mixed_float16, LossScaleOptimizer given", Fit(_loss_scaled)),
    _half(
        "mixed_float16, gradient_accumulation_steps",
        Fit(_accumulating),
    ),
    _half("mixed_bfloat16", Fit(), "mixed_bfloat16"),
    # Models.
    Case(
        "frozen layer",
        Fit(model=models.partly_frozen),
        collectives=VARIABLES // 2 * STEPS,
    ),
    Case(
        "trainable set changes",
        programs.trainable_set_changes,
        of=("tensorflow", "torch"),
    ),
    Case(
        "unused variables",
        Fit(model=models.WithUnused),
        collectives=VARIABLES * STEPS,
    ),
    Case(
        "outputs with losses of their own",
        Fit(
            model=models.two_outputs,
            data=_of_two_outputs,
            loss=lambda: {"classes": models.sparse_loss(), "number": "mse"},
            compile={"loss_weights": {"classes": 1.0, "number": 0.3}},
        ),
    ),
    Case("subclassed model", Fit(model=models.Subclassed)),
    Case("clone_model", Fit(model=models.cloned)),
    Case("custom train_step", Fit(model=models.OwnStep), of=_TENSORFLOW),
    Case("SyncBatchNormalization", Fit(model=models.normalized)),
    Case(
        "TextVectorization",
        Fit(model=models.text_reader, data=models.make_texts),
        of=_TENSORFLOW,
    ),
    Case(
        "EfficientNet, of which the last layer is trained",
        Fit(model=models.transfer, data=models.make_images),
        "float32",
        "float32",
    ),
    Case(
        "losses of words with masks, weighted",
        Fit(
            settings={"weighted": True},
            model=models.tagger,
            data=models.make_tags,
        ),
    ),
    # Random numbers: one process draws those of each rank for its rows.
    Case("Dropout, masks of each rank", programs.dropout, of=_TENSORFLOW),
    Case("VAE, draws of each rank", programs.vae, of=_TENSORFLOW),
    # Copies.
    Case("pickled optimizer", programs.pickled_optimizer),
    Case("copy.deepcopy of an optimizer", programs.deep_copied_optimizer),
    Case("from_config(get_config())", programs.optimizer_of_a_config),
    Case("copy.deepcopy of a model", programs.copied_model),
    Case("kr.load_model, half-way", programs.loaded_model),
    Case("distributed half-way", programs.distributed_between),
    # Data.
    Case("sample weights", Fit(data=_weighted)),
    Case(
        "class weights",
        Fit(fit={"class_weight": {0: 1.0, 1: 3.0, 2: 0.5, 3: 0.1}}),
    ),
    # Loops.
    Case(
        "GradientTape",
        programs.tape,
        collectives=VARIABLES * STEPS,
        of=_TENSORFLOW,
    ),
    Case("persistent tape", programs.persistent_tape, of=_TENSORFLOW),
    Case("nested tape", programs.nested_tape, of=_TENSORFLOW),
    Case("two optimizers, as GANs have", programs.gan, of=_TENSORFLOW),
    Case("GAN in a train_step", programs.gan_in_a_train_step, of=_TENSORFLOW),
]
CASES = [case for case in _ALL if BACKEND in case.of]
