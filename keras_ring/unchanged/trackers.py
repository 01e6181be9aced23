"""Makes experiment trackers record one run, that of rank 0.

A program that begins a run outside of callbacks (`wandb.init()`,
`mlflow.start_run()`) does so on each rank. Environment variables of the
trackers make the runs of all ranks but rank 0 record nothing, or record it
where it is removed afterwards.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping

from keras_ring.core.notices import say

# By module: environment variables, with values by which nothing is recorded, as
# the documentation of each tracker says. W&B takes "disabled", Neptune 1.x
# "debug" and neptune-scale "disabled", Comet a flag that its settings in code
# call `disabled`. MLflow and ClearML are handled below: MLflow writes to the
# URI in its variable, and ClearML in its offline mode, which reaches no server,
# keeps a session in its cache.
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
    """Makes trackers keep no records of this process, unless it is rank 0.

    Args:
        rank: Integer, the rank of this process.
    """
    if rank == 0:
        return
    for module, variables in _MUTED.items():
        if _is_installed(module):
            os.environ.update(variables)
    if _is_installed(_MLFLOW):
        os.environ["MLFLOW_TRACKING_URI"] = f"file://{_own_folder(_MLFLOW)}"
        # Without this, MLflow 3 requires a database.
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    if _is_installed(_CLEARML):
        os.environ["CLEARML_OFFLINE_MODE"] = "1"
        os.environ["CLEARML_CACHE_DIR"] = _own_folder(_CLEARML)


def tell() -> None:
    """Prints, for each imported tracker, that it records rank 0 alone."""
    for module in sorted(MODULES):
        if module in sys.modules:
            say(f"{module} records what rank 0 does, once")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        # The module was made by hand and has no spec.
        return True


def _own_folder(module: str) -> str:
    """Makes and returns a directory that is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix=f"keras_ring-{module}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
