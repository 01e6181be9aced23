"""The environment variables of a plan, to which those of a rank are added."""

import re
from collections.abc import Mapping

from keras_ring.launch import tensorflow_lines
from keras_ring.launch.directories import absolute
from keras_ring.launch.request import RunRequest
from keras_ring.launch.settings import check_settings
from keras_ring.launch.usage import UsageError
from keras_ring.protocol import auto_options, contract
from keras_ring.protocol.time_limits import LIMITS

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HASH_SEED = "PYTHONHASHSEED"
# Variables of this host or login, which are wrong on other hosts.
_NOT_FORWARDED = re.compile(
    r"HOME|HOSTNAME|LOGNAME|MAIL|OLDPWD|PWD|SHELL|SHLVL|TMPDIR|USER|_|DISPLAY"
    r"|XAUTHORITY|(SSH|XDG|DBUS|SLURM|SLURMD|PMI|PMIX|PRTE|OMPI)_.*"
)


def rank_environment(
    request: RunRequest, environment: Mapping[str, str], *, remote: bool
) -> dict[str, str]:
    """Returns the variables of ranks, without those of the job's outputs.

    Args:
        request: `RunRequest` of the user.
        environment: The environment variables of the launcher.
        remote: Boolean, whether any of the ranks is on another host.

    Raises:
        UsageError: If a variable, or an option that becomes one, is wrong.
    """
    made = _forwarded(environment) if remote else dict(environment)
    if contract.RANK in environment:
        # This process is a rank that starts a job of another program.
        for name in auto_options.OPTIONS:
            made.pop(name, None)
    for text in request.variables:
        name, value = parse_variable(text)
        made[name] = value
    if request.port_range is not None and remote:
        made[contract.PORT_RANGE] = request.port_range
    if request.start_timeout is not None:
        made[contract.START_TIMEOUT] = request.start_timeout
    if request.log_level is not None:
        made[contract.LOG_LEVEL] = request.log_level
    if request.tls is not None:
        made[contract.TLS] = "1" if request.tls else "0"
    made.update(_autotune(request))
    made.update(_auto(request, made))
    if not made.get(tensorflow_lines.LEVEL):
        made[tensorflow_lines.LEVEL] = str(tensorflow_lines.QUIET)
    # Variables for the launcher only.
    for name in (contract.METRICS_TOKEN, *LIMITS):
        made.pop(name, None)
    made[contract.RESTART] = "0"
    check_settings(made)
    return made


def parse_variable(text: str) -> tuple[str, str]:
    """Splits `NAME=value` as given to `--env`.

    Raises:
        UsageError: If it is malformed, or names a variable that the launcher
            itself sets.
    """
    name, equals, value = text.partition("=")
    if not equals or not _VARIABLE.fullmatch(name) or "\0" in value:
        raise UsageError(f"--env: {text!r} is not of the form NAME=value")
    if name in contract.LAUNCHER_OWNED:
        raise UsageError(f"--env: {name} is set by keras-ring itself")
    return name, value


def _forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if not _NOT_FORWARDED.fullmatch(name)
    }


def _autotune(request: RunRequest) -> dict[str, str]:
    """Returns the variables of the options of `--autotune`."""
    log = request.autotune_log
    given = {
        contract.AUTOTUNE: "1" if request.autotune else None,
        # A rank may have another working directory.
        contract.AUTOTUNE_LOG: log and str(absolute(log)),
        contract.AUTOTUNE_WARMUP_SAMPLES: request.autotune_warmup_samples,
        contract.AUTOTUNE_STEPS_PER_SAMPLE: request.autotune_steps_per_sample,
        contract.AUTOTUNE_MAX_SAMPLES: request.autotune_max_samples,
    }
    return {name: value for name, value in given.items() if value is not None}


def _auto(
    request: RunRequest, environment: Mapping[str, str]
) -> dict[str, str]:
    """Returns the variables of `--auto` and of its options."""
    options = {
        "--batch": (contract.AUTO_BATCH, request.auto_batch),
        "--scale-learning-rate": (
            contract.AUTO_LEARNING_RATE,
            request.auto_learning_rate,
        ),
        "--warmup-epochs": (
            contract.AUTO_WARMUP_EPOCHS,
            request.auto_warmup_epochs,
        ),
    }
    given = {} if request.auto is None else {contract.AUTO: request.auto}
    is_on = auto_options.is_on({**environment, **given})
    for option, (name, text) in options.items():
        if text is None:
            continue
        if not is_on:
            raise UsageError(f"{option} {text} is for --auto: add --auto")
        given[name] = text
    if is_on and not environment.get(_HASH_SEED):
        # Otherwise the order of the strings in a set would differ between
        # ranks, and so would numbers that a program assigns in that order.
        given[_HASH_SEED] = "0"
    return given
