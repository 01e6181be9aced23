"""The life of a job: it begins with `init()` and ends with `shutdown()`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import platform
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from importlib import metadata

from keras_ring import _version, errors
from keras_ring._typing import Communicator
from keras_ring.core import (
    installs,
    json_logs,
    last_exception,
    native,
    notices,
    parent_rank,
    shared_seed,
    start_checks,
)
from keras_ring.core import process_sets as sets
from keras_ring.core.autotune import worker as autotune
from keras_ring.core.engines import known, mpi
from keras_ring.core.engines.rank_settings import rank_settings
from keras_ring.core.logs import LogForwarder
from keras_ring.protocol import (
    contract,
    error_file,
    standard_streams,
    tensorflow_package,
)

# Reentrant, because functions that are called at the start may call `init`.
_lock = threading.RLock()
_log_forwarder: LogForwarder | None = None
_autotune: autotune.Autotune | None = None
# Those that were registered when the one of the job was.
_num_exit_handlers = 0


def init(
    process_sets: Iterable[sets.ProcessSet | Iterable[int]] | str | None = None,
    *,
    comm: Communicator | None = None,
) -> None:
    """Connects this process to the other ranks of its job.

    The program that started the processes tells each of them its rank and how
    to reach the others: `keras-ring run`, or an engine such as mpirun, srun,
    torchrun or Kubernetes (docs/launching.md). A process that was started
    alone is a job of one rank.

    Calling it again has no effect, but the process sets of a second call must
    be part of the job. After `shutdown()`, or after `init()` has failed, it may
    be called again for a new job.

    A process that this one starts later (a worker that loads data, forked or
    spawned, or another program) still knows its rank, but takes no part in the
    job: collectives raise an error there, and its end is not that of the rank.
    To make it a job of its own, start it with `KERAS_RING_SIZE=1` in its
    environment, or by `keras-ring run`.

    Args:
        process_sets: A list of `ProcessSet` (or of lists of ranks) to add at
            the start, the same on all ranks. `"dynamic"` is the same as `None`:
            more can always be added by `add_process_set`. Defaults to `None`.
        comm: A communicator of mpi4py, such as `MPI.COMM_WORLD` or a result of
            `Split`. Its processes are the ranks of the job, in its order, and
            all of them must call this. Defaults to `None`, which means
            `MPI.COMM_WORLD` under mpirun.

    Raises:
        ValueError: If a process set has ranks that the job does not have, or is
            given twice; or, in a second call, if it is not part of the job.
        ConfigurationError: If a `KERAS_RING_*` variable is invalid; if `comm`
            is given although `keras-ring run` has started the program; or in a
            process that `multiprocessing` has started before the program
            called `init()`, and that runs the first lines of the program. On
            rank 0, if the job is to be tuned and Optuna is not installed.
        StartError: If the ranks do not connect within
            `KERAS_RING_START_TIMEOUT`, or differ in versions or settings that
            must be equal; the text names the ranks. Also if an engine has
            started several processes and does not provide all that a rank
            must know.
        BuildMismatchError: If the program has imported TensorFlow, and
            keras_ring was built for another version.

    Example:
    ```python
    import keras_ring as kr

    kr.init()
    print(f"rank {kr.rank()} of {kr.size()}")
    ```
    """
    global _log_forwarder
    standard_streams.fill_closed()
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise ValueError(
            '`process_sets` must be a list of `ProcessSet`, "dynamic" or None. '
            f"Received: {process_sets!r}"
        )
    static = [] if isinstance(process_sets, str) else list(process_sets or ())
    with _lock:
        core = native.core()
        if core.is_initialized():
            sets.require_added(static)
            return
        parent = parent_rank.found(os.environ) if comm is None else None
        if parent is not None:
            core.init_child(asdict(parent.topology), parent.pid)
            sets.note_unconnected(static)
            return
        parent_rank.leave(os.environ)
        if comm is None and parent_rank.runs_first_lines():
            _require_one_process()
        with rank_settings(os.environ, comm) as settings:
            # Only after the settings: other ranks may wait for this one without
            # a time limit there, in a collective of MPI, so it must not fail
            # before.
            installs.run_before_start()
            json_logs.install({**os.environ, **settings})
            key = settings.get(contract.JOB_KEY, "")
            shared_seed.note(key or os.environ.get(contract.JOB_KEY, ""))
            _note_errors()
            log_forwarder = _start(settings, static)
        parent_rank.mark(os.environ, core.topology())
        error_file.mark_started()
        if core.topology().rank == 0:
            _name_ignored_variables()
        installs.run_on_start()
        if _log_forwarder is None:
            leave_first()
            _forget_in_forks()
        _log_forwarder = log_forwarder


def _require_one_process() -> None:
    """Raises an error if this process would be one of several ranks."""
    size = os.environ.get(contract.SIZE)
    if size == "1" or not (size or known.identity_among_several(os.environ)):
        return
    raise errors.ConfigurationError(
        "`multiprocessing` has started this process, and runs the first lines "
        "of the program in it, before the rank that asked for it has called "
        "`keras_ring.init()`: so it would take itself for that rank. Call "
        "`init()` before anything that starts processes, or only under "
        '`if __name__ == "__main__":`.'
    )


def _start(
    settings: dict[str, str], static: list[sets.ProcessSet | Iterable[int]]
) -> LogForwarder:
    """Starts the job, adds its process sets, and starts its tuning."""
    global _autotune
    core = native.core()
    log_forwarder = LogForwarder()
    try:
        core.init(
            [*_versions(), f"process_sets={sets.fingerprint(static)}"],
            settings,
        )
        if static:
            sets.add_process_sets(static)
        _autotune = autotune.start(core)
    except core.StatusError as error:
        log_forwarder.stop()
        raise _translated(error) from None
    except BaseException:
        # Wrong sets are an error on all ranks. A rank that should tune the job
        # and cannot ends it.
        sets.forget_all()
        core.shutdown("")
        log_forwarder.stop()
        raise
    return log_forwarder


def leave_first() -> None:
    """Makes the job end before the exit handlers registered until now run.

    Exit handlers run in the reverse order of their registration, so this
    registers that of the job again.
    """
    global _num_exit_handlers
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    _num_exit_handlers = atexit._ncallbacks()


def shutdown() -> None:
    """Leaves the job and ends it for all ranks, in agreement.

    Collectives for which other ranks still wait fail there with a message that
    this rank has left. It is called automatically when the program ends. It
    has no effect if `init()` was not called.
    """
    with _lock:
        core = native.core()
        if not core.is_initialized():
            return
        _stop_autotune()
        reason = error_file.last_exception() or last_exception.reason()
        try:
            if not reason:
                installs.run_before_end()
        finally:
            core.shutdown(reason)
            sets.forget_all()
            if _log_forwarder is not None:
                _log_forwarder.stop()


def _stop_autotune() -> None:
    global _autotune
    if _autotune is not None:
        _autotune.stop()
    _autotune = None


def _at_exit() -> None:
    """Shuts down, and ends a rank of a broken job without delay.

    TensorFlow and the interpreter need about half a second of a core to clean
    up, for each rank of the host. If an uncaught exception ends a rank because
    another one was lost, it need not wait for that, and the launcher or
    scheduler wants the whole job to end.
    """
    core = native.core()
    broken = bool(core.job_error())
    failed = broken and bool(last_exception.reason())
    # Asked now, while there is a job.
    timeout = core.option("KERAS_RING_SHUTDOWN_TIMEOUT") if failed else ""
    last_exception.write()
    shutdown()
    # `last_value` is set for uncaught exceptions only, so `sys.exit(code)`
    # keeps its code.
    uncaught = getattr(sys, "last_value", None) is not None
    # Not if others have only left earlier: MPI ends when all processes have
    # reached their end, however long that takes.
    if failed:
        mpi.limit_finalize(2.0 * float(timeout))
    if not (broken and uncaught) or sys.flags.interactive:
        return
    if atexit._ncallbacks() > _num_exit_handlers:
        # Those that were registered later have run, and would run again.
        return
    atexit.unregister(_at_exit)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)


@functools.cache
def _forget_in_forks() -> None:
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """Forgets the job in a fork, which has no threads of its parent."""
    global _lock, _log_forwarder, _autotune
    _lock = threading.RLock()
    _log_forwarder = None
    _autotune = None
    atexit.unregister(_at_exit)


def _note_errors() -> None:
    error_file.install()
    last_exception.install()


def _name_ignored_variables() -> None:
    text = start_checks.ignored_variables(
        os.environ, start_checks.known_variables()
    )
    if text:
        notices.warn_once(f"{text}.")


def _versions() -> list[str]:
    """Returns the installed versions, which must be equal on all ranks.

    The packages are not imported, because a program may use none of them.
    """
    return [
        f"keras_ring={_version.__version__}",
        f"tensorflow={tensorflow_package.installed_version()}",
        f"keras={_version_of('keras')}",
        f"torch={_version_of('torch')}",
        f"python={platform.python_version()}",
    ]


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _translated(error: Exception) -> Exception:
    code, message = error.args
    if code == "INVALID_ARGUMENT":
        return errors.ConfigurationError(message)
    return errors.StartError(f"{code}: {message}")
