"""One run of experiment trackers, which all ranks would begin.

Trackers have variables that turn them off. A program that begins a run outside
of callbacks (`wandb.init()`, `mlflow.start_run()`) does so on each rank; on all
but rank 0 it begins one that records nothing, or that nobody keeps.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping

from keras_ring._auto.said import say

# Module -> variables, and what they are where nothing is to be recorded; as
# the documentation of each tracker says. W&B takes "disabled", Neptune 1.x
# "debug" and neptune-scale "disabled", Comet a flag that its settings in code
# call `disabled`. MLflow writes to where its variable says; and ClearML, which
# in its offline mode reaches no server, keeps a session in its cache.
_MUTED: Mapping[str, Mapping[str, str]] = {
    "comet_ml": {"COMET_AUTO_LOG_DISABLE": "1"},
    "neptune": {"NEPTUNE_MODE": "debug"},
    "neptune_scale": {"NEPTUNE_MODE": "disabled"},
    "swanlab": {"SWANLAB_MODE": "disabled"},
    "wandb": {"WANDB_MODE": "disabled"},
}
_CLEARML, _MLFLOW = "clearml", "mlflow"
MODULES = frozenset({*_MUTED, _CLEARML, _MLFLOW})


def mute(rank: int) -> None:
    """Has trackers record nothing that is kept, on ranks other than rank 0.

    Args:
        rank: Integer, that of this process.
    """
    if rank == 0:
        return
    for module, variables in _MUTED.items():
        if _is_installed(module):
            os.environ.update(variables)
    if _is_installed(_MLFLOW):
        os.environ["MLFLOW_TRACKING_URI"] = f"file://{_own_folder(_MLFLOW)}"
        # MLflow 3 wants a database else.
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    if _is_installed(_CLEARML):
        os.environ["CLEARML_OFFLINE_MODE"] = "1"
        os.environ["CLEARML_CACHE_DIR"] = _own_folder(_CLEARML)


def tell() -> None:
    """Says of trackers that the program has imported that one run is kept."""
    for module in sorted(MODULES):
        if module in sys.modules:
            say(f"{module} records what rank 0 does, once")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        # A module that was made by hand.
        return True


def _own_folder(module: str) -> str:
    """Makes a directory that is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix=f"keras_ring-{module}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
