"""Names and arguments that users type: what is here may not change."""

import inspect

import keras
import pytest

import keras_ring as kr
from keras_ring.keras import callbacks as made_callbacks

_REDUCTION = {
    "op": kr.Average,
    "compression": kr.Compression.none,
    "sparse_as_dense": False,
    "gradient_predivide_factor": 1.0,
    "groups": None,
    "process_set": kr.global_process_set,
    "scale_local_gradients": True,
    "weighted": False,
}
_OPTIMIZER = {
    **_REDUCTION,
    "backward_passes_per_step": 1,
    "average_aggregated_gradients": False,
}
_REQUIRED = inspect.Parameter.empty
# Arguments with their defaults.
SIGNATURES = {
    "DistributedGradientTape": {"tape": _REQUIRED, **_REDUCTION},
    "DistributedOptimizer": {"optimizer": _REQUIRED, **_OPTIMIZER},
    "PartialDistributedGradientTape": {
        "tape": _REQUIRED,
        "local_layers": (),
    },
    "PartialDistributedOptimizer": {
        "optimizer": _REQUIRED,
        "local_layers": (),
    },
    "broadcast_model": {"model": _REQUIRED, "root_rank": 0},
    "callbacks.BroadcastGlobalVariablesCallback": {
        "root_rank": 0,
        "device": "",
        "local_variables": None,
        "check": True,
        "fold_rank": True,
    },
    "callbacks.MetricAverageCallback": {},
    "callbacks.LearningRateScheduleCallback": {
        "initial_lr": _REQUIRED,
        "multiplier": _REQUIRED,
        "start_epoch": 0,
        "end_epoch": None,
        "staircase": True,
        "momentum_correction": True,
        "steps_per_epoch": None,
    },
    "callbacks.LearningRateWarmupCallback": {
        "initial_lr": _REQUIRED,
        "warmup_epochs": 5,
        "momentum_correction": True,
        "steps_per_epoch": None,
        "verbose": 0,
    },
    "callbacks.ConsistencyCheck": {"every": "epoch"},
    "callbacks.InputPipeline": {"synthetic_steps": 50},
    "callbacks.Progress": {"enabled": True},
    "callbacks.RankZeroOnly": {"callback": _REQUIRED},
    "schedules.Warmup": {
        "schedule_or_lr": _REQUIRED,
        "warmup_steps": _REQUIRED,
    },
    "data.shard": {
        "dataset": None,
        "uneven": "pad",
        "shuffle": False,
        "seed": 0,
        "files": None,
    },
    "evaluate": {
        "model": _REQUIRED,
        "x": None,
        "y": None,
        "batch_size": None,
        "verbose": "auto",
        "sample_weight": None,
        "steps": None,
        "callbacks": None,
        "return_dict": False,
    },
    "predict": {
        "model": _REQUIRED,
        "x": _REQUIRED,
        "batch_size": None,
        "verbose": "auto",
        "steps": None,
        "callbacks": None,
    },
    "callbacks.EveryRank": {"callback": _REQUIRED},
    "BroadcastGlobalVariablesHook": {"root_rank": _REQUIRED, "device": ""},
    "checkpoint.save": {
        "model": _REQUIRED,
        "directory": _REQUIRED,
        "step": _REQUIRED,
    },
    "checkpoint.restore": {"model": _REQUIRED, "directory": _REQUIRED},
}


def _found(name):
    value = kr
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments(name):
    parameters = inspect.signature(_found(name)).parameters
    for argument, default in SIGNATURES[name].items():
        assert argument in parameters, argument
        assert parameters[argument].default == default, argument
    # More of them must not be in the way of these.
    for argument, parameter in parameters.items():
        if argument not in SIGNATURES[name]:
            assert (
                parameter.default is not _REQUIRED
                or parameter.kind is parameter.VAR_KEYWORD
            ), argument


def test_callbacks_are_those_that_are_public():
    assert kr.callbacks.__all__ == made_callbacks.__all__


@pytest.mark.parametrize(
    ("ours", "its"),
    [
        (kr.SyncBatchNormalization, keras.layers.BatchNormalization),
        (kr.callbacks.ModelCheckpoint, keras.callbacks.ModelCheckpoint),
        (kr.callbacks.BackupAndRestore, keras.callbacks.BackupAndRestore),
    ],
)
def test_arguments_of_keras_are_taken(ours, its):
    """By name or through to Keras, and in the same order."""
    mine = list(inspect.signature(ours).parameters.values())
    kinds = {parameter.kind for parameter in mine}
    names = [parameter.name for parameter in mine]
    for index, parameter in enumerate(
        inspect.signature(its).parameters.values()
    ):
        if parameter.name in names and parameter.kind is not (
            parameter.VAR_KEYWORD
        ):
            assert names.index(parameter.name) == index
        else:
            assert parameter.VAR_KEYWORD in kinds, parameter.name


@pytest.mark.parametrize("name", ["none", "fp16", "bf16"])
def test_compressions(name):
    assert hasattr(kr.Compression, name)


def test_methods():
    assert callable(kr.DistributedGradientTape.register_local_source)
    optimizer = kr.DistributedOptimizer(keras.optimizers.SGD())
    assert callable(optimizer.register_local_var)
    gradient = inspect.signature(kr.DistributedGradientTape.gradient)
    assert [name for name in gradient.parameters if name != "self"] == [
        "target",
        "sources",
        "output_gradients",
        "unconnected_gradients",
        "weight",
    ]


def test_load_model_takes_the_settings_of_an_optimizer():
    path, *others = inspect.signature(kr.load_model).parameters.values()
    assert path.name == "path"
    assert path.kind is path.POSITIONAL_OR_KEYWORD
    assert others[-1].kind is others[-1].VAR_KEYWORD


def test_what_there_is_not():
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        kr.nothing  # noqa: B018
