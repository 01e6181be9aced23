"""`keras_ring.run`: runs a function on several ranks."""

from __future__ import annotations

import json
import numbers
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keras_ring.errors import RankFailedError, StartError
from keras_ring.launch import directories, function_rank
from keras_ring.launch.cluster import run_plan
from keras_ring.launch.job_end import JobEnd
from keras_ring.launch.plan import LaunchPlan, make_plan
from keras_ring.launch.preflight import HostsError
from keras_ring.launch.rank_command import FILES
from keras_ring.launch.request import RunRequest
from keras_ring.launch.summary import failure_lines
from keras_ring.launch.usage import UsageError, speaking_as
from keras_ring.protocol import (
    auto_options,
    code_sources,
    standard_streams,
    time_limits,
)


def run(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    np: int | None = None,
    *,
    auto: bool = False,
    hosts: str | None = None,
    hostfile: str | os.PathLike[str] | None = None,
    ssh_port: int | None = None,
    ssh_identity: str | os.PathLike[str] | None = None,
    rsh: str | None = None,
    interface: str | None = None,
    port_range: str | None = None,
    env: Mapping[str, str] | None = None,
    start_timeout: float | None = None,
    grace_period: float | str | None = None,
    failure_wait: float | str | None = None,
    failure_grace: float | str | None = None,
    host_timeout: float | None = None,
    connect_timeout: float | None = None,
    log_level: str | None = None,
    log_format: str | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    output_max_bytes: str | int | None = None,
    output_backups: int | None = None,
    prefix_timestamp: bool = False,
    stdout: str | None = None,
    threads: int | None = None,
    bind: bool = False,
    fold: bool = True,
) -> list[Any]:
    """Runs a function on several ranks, each a process of its own.

    It works like `keras-ring run`, and has its options. The output of the ranks
    is shown here. The failure of one rank or Ctrl-C ends all ranks, and none of
    their processes or files is left behind. The function must call `kr.init()`
    as a program does, unless `auto` does that.

    Args:
        fn: Function that each rank calls. It may be defined in a notebook or in
            a script, even within another function. Its source is sent with it,
            for AutoGraph and tracebacks. It must not refer to objects that
            cannot be pickled, such as an open file, a lock or a model of this
            process.
        args: Sequence, the positional arguments of `fn`, the same on every
            rank.
        kwargs: Dictionary, the keyword arguments of `fn`. Defaults to none.
        np: Integer, the number of ranks. Defaults to the number that the hosts
            take, or `2` if no hosts are given.
        auto: Boolean, whether `fn` is written for a single process and trains
            on all ranks unchanged, as with `keras-ring run --auto`. Variables
            such as `KERAS_RING_AUTO_BATCH` in `env` set the options of that.
            Defaults to `False`.
        hosts: String, the hosts and how many ranks each takes, such as
            `"node1:4,node2:4"`. Defaults to this host.
        hostfile: Path of a file with the hosts, as in
            `keras-ring run --hostfile`. Defaults to `None`.
        ssh_port: Integer, the port of the hosts' sshd.
        ssh_identity: Path of a private key for the hosts.
        rsh: String, the command that replaces `ssh`, such as
            `"ssh -F config"`.
        interface: String, the network over which ranks reach each other: names
            of interfaces, addresses or networks, such as `"10.0.0.0/8"`.
            Defaults to any that works.
        port_range: String, the ports on which ranks may listen for the others,
            such as `"30000-30099"`. It needs one port for each rank of a host.
        env: Dictionary of environment variables for the ranks, in addition to
            those of this process.
        start_timeout: Float, the seconds that ranks wait for each other in
            `kr.init()`.
        grace_period: Float, the seconds that ranks get to end after Ctrl-C or
            another signal to this process, before they are killed; or
            `"never"`. Defaults to `10`.
        failure_wait: Float, the seconds in which ranks may end by themselves
            after another one has failed, before they get SIGTERM; or `"never"`.
            Defaults to `2`.
        failure_grace: Float, the seconds that ranks get to end after that
            SIGTERM, before they are killed; or `"never"`. Defaults to `2`.
        host_timeout: Float, the seconds without a sign of life after which a
            host is lost. Defaults to `3.5`.
        connect_timeout: Float, the seconds for ssh to connect to a host. The
            host then has the same time, and at least 30 seconds, to answer.
            Hosts have a third of it, and at least 3 seconds, to connect to each
            other. Defaults to `10`.
        log_level: String, one of `"debug"`, `"info"`, `"warning"`, `"error"`
            and `"off"`.
        log_format: String, `"text"` or `"json"`. With `"json"`, each line is a
            JSON object. Defaults to `"text"`.
        output_dir: Path of a directory to which each rank's output is written
            as well. Defaults to `None`.
        output_max_bytes: Integer, or a string such as `"100M"`, the size at
            which a file of `output_dir` is full, and a new one is begun.
            Defaults to no limit.
        output_backups: Integer, the number of full files to keep beside each
            current one. Defaults to `3`.
        prefix_timestamp: Boolean, whether each line of output starts with the
            time. Defaults to `False`.
        stdout: String, `"all"` or `"rank0"`, the ranks whose standard output
            is shown. Defaults to `"rank0"` with `auto`, else `"all"`.
        threads: Integer, the number of threads of each rank, or `0` for as
            many as its libraries choose. Defaults to the number of cores
            divided by the number of ranks.
        bind: Boolean, whether each rank runs on processors of its own only.
            Defaults to `False`.
        fold: Boolean, whether a line that several ranks print alike to
            standard error is shown once. Defaults to `True`.

    Returns:
        List of the function's results, by rank.

    Raises:
        ValueError: If an argument is invalid.
        TypeError: If `fn` cannot be called, or `fn` and its arguments cannot
            be pickled.
        keras_ring.errors.RankFailedError: If a rank failed. The text names the
            first rank that failed, and has its traceback.
        keras_ring.errors.StartError: If a host cannot be reached, or does not
            have what the job needs.
        RuntimeError: If this is not the main thread, which receives signals.

    Example:
    ```python
    def train(steps):
        kr.init()
        ...
        return kr.rank(), float(loss)


    results = kr.run(train, args=(100,), np=2)
    ```
    """
    _check_types(fn, args, kwargs, np)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "`keras_ring.run` watches for signals, which only the main thread "
            "can. It was called in the thread "
            f"{threading.current_thread().name!r}."
        )
    standard_streams.fill_closed()
    if np is None and hosts is None and hostfile is None:
        np = 2
    call = _pickled(fn, tuple(args), dict(kwargs or {}))
    # The directory is private to this user.
    with tempfile.TemporaryDirectory(
        prefix="keras-ring-call-", dir=_temporary_directory()
    ) as name:
        directory = Path(name)
        request = RunRequest(
            command=(sys.executable, function_rank.__file__, FILES),
            num_ranks=np,
            hosts=hosts,
            hostfile=None if hostfile is None else os.fspath(hostfile),
            ssh_port=ssh_port,
            ssh_identity=(
                None if ssh_identity is None else os.fspath(ssh_identity)
            ),
            rsh=rsh,
            interface=interface,
            port_range=port_range,
            output_dir=None if output_dir is None else os.fspath(output_dir),
            output_max_bytes=(
                None if output_max_bytes is None else str(output_max_bytes)
            ),
            output_backups=output_backups,
            prefix_timestamp=prefix_timestamp,
            stdout=stdout,
            auto=auto_options.ON if auto else None,
            variables=tuple(f"{k}={v}" for k, v in (env or {}).items()),
            start_timeout=None if start_timeout is None else str(start_timeout),
            time_limits={
                name: str(seconds)
                for name, seconds in (
                    (time_limits.GRACE_PERIOD, grace_period),
                    (time_limits.FAILURE_WAIT, failure_wait),
                    (time_limits.FAILURE_GRACE, failure_grace),
                    (time_limits.HOST_TIMEOUT, host_timeout),
                    (time_limits.CONNECT_TIMEOUT, connect_timeout),
                )
                if seconds is not None
            },
            log_level=log_level,
            log_format=log_format,
            threads=threads,
            bind=bind,
            fold=fold,
        )
        plan = replace(_plan(request), files=directory)
        function_rank.write_private(directory / function_rank.CALL, call)
        paths = json.dumps(
            [path or directories.working_directory() for path in sys.path]
        )
        function_rank.write_private(
            directory / function_rank.PATHS, paths.encode()
        )
        try:
            with speaking_as(plan.log_source):
                end = run_plan(plan)
        except HostsError as error:
            raise StartError(f"keras_ring.run: {error}") from None
        _raise_failure(end)
        return [_result(directory, rank) for rank in range(plan.size)]


def _check_types(fn: object, args: object, kwargs: object, np: object) -> None:
    """Raises a TypeError for the first argument of a wrong type."""

    def received(value: object) -> str:
        return f"Received: {value!r} of type {type(value).__name__}"

    if not callable(fn):
        raise TypeError(f"`fn` must be a function. {received(fn)}")
    if not isinstance(args, Iterable) or isinstance(args, str | bytes):
        hint = f"; for {args} ranks, np={args}" if isinstance(args, int) else ""
        raise TypeError(
            "`args` must be a list or a tuple of the arguments of `fn`"
            f"{hint}. {received(args)}"
        )
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(
            "`kwargs` must be a dictionary of keyword arguments of `fn`, or "
            f"None. {received(kwargs)}"
        )
    if isinstance(np, bool) or not (
        np is None or isinstance(np, numbers.Integral)
    ):
        raise TypeError(
            f"`np` must be an integer, the number of ranks. {received(np)}"
        )


def _pickled(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bytes:
    try:
        return code_sources.dumps((fn, args, kwargs)).encode()
    except Exception as error:
        raise TypeError(
            "`fn`, `args` and `kwargs` go to other processes, so it must be "
            "possible to pickle them; make models, datasets and the like "
            f"inside of `fn`. Received: fn={fn!r}: {error}"
        ) from error


def _temporary_directory() -> Path:
    try:
        return directories.temporary_directory()
    except UsageError as error:
        raise ValueError(f"keras_ring.run: {error}") from None


def _plan(request: RunRequest) -> LaunchPlan:
    try:
        plan = make_plan(request, os.environ, own_names={socket.gethostname()})
        plan.output.prepare(plan.size)
    except UsageError as error:
        raise ValueError(f"keras_ring.run: {error}") from None
    return plan


def _raise_failure(end: JobEnd) -> None:
    if end.first is not None:
        lines = failure_lines(end.first, end.ends, end.tail, end.seconds)
        if end.first.error is not None and end.first.error.traceback:
            lines.append(f"traceback of rank {end.first.rank}:")
            lines.append(end.first.error.traceback.rstrip())
        raise RankFailedError("\n".join(lines))
    if end.stop_signal is not None:
        # Raise the signal that ended the ranks in this process as well: by
        # default, SIGINT is a KeyboardInterrupt.
        signal.raise_signal(end.stop_signal)
        name = signal.Signals(end.stop_signal).name
        raise RankFailedError(f"the ranks were ended by {name}")


def _result(directory: Path, rank: int) -> Any:
    path = function_rank.result_path(directory, rank)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RankFailedError(
            f"rank {rank} ended before the function had returned, with exit "
            "code 0 (by `sys.exit()`?)"
        ) from None
    return code_sources.decode(data).load()
