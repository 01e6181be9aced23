"""Log lines of a rank as JSON objects, for `KERAS_RING_LOG_FORMAT=json`."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType

from keras_ring import errors
from keras_ring.core import native
from keras_ring.protocol import contract, error_file
from keras_ring.protocol.error_text import one_line
from keras_ring.protocol.job_id import job_id
from keras_ring.protocol.log_source import FORMATS, JSON, LogSource
from keras_ring.protocol.trace_context import TraceContext

_formatter: logging.Formatter | None = None

# The prefix of our lines among others in `absl`.
_OURS = "keras_ring: "
_KEY = re.compile(r"[0-9a-fA-F]{64}")


class JsonFormatter(logging.Formatter):
    """A formatter that makes a JSON object of each record.

    Args:
        source: `LogSource` of this process.
        step: Function that returns the number of training steps, or `None`
            before the first.
    """

    def __init__(
        self, source: LogSource, step: Callable[[], int | None]
    ) -> None:
        super().__init__()
        self._source = source
        self._step = step

    def format(self, record: logging.LogRecord) -> str:
        """Returns a record as one line."""
        message, logger = record.getMessage(), record.name
        if logger == "absl" and message.startswith(_OURS):
            message, logger = message.removeprefix(_OURS), "keras_ring"
        told = [record.exc_text or ""]
        if record.exc_info and not record.exc_text:
            told = [self.formatException(record.exc_info)]
        if record.stack_info:
            told.append(self.formatStack(record.stack_info))
        return self._source.line(
            message,
            level=record.levelname.lower(),
            logger=logger,
            seconds=record.created,
            step=self._step(),
            exception="\n".join(filter(None, told)),
        )


def install(environment: Mapping[str, str]) -> None:
    """Makes this rank log in JSON if its environment says so.

    Handlers that write to standard error or standard output get the formatter;
    handlers of files keep theirs. Warnings, and exceptions that end the process
    or a thread, become records as well.

    Args:
        environment: The environment variables of this process, with the
            settings of its rank.

    Raises:
        ConfigurationError: If the variable has another value.
    """
    wanted = environment.get(contract.LOG_FORMAT, "")
    if wanted not in ("", *FORMATS):
        raise errors.ConfigurationError(
            f"{contract.LOG_FORMAT} is {wanted!r}: expected text or json"
        )
    if wanted != JSON:
        return
    global _formatter
    source, step = _source(environment), _step_of(os.getpid())
    _formatter = JsonFormatter(source, step)
    format_new_handlers()
    logging.captureWarnings(True)

    def show(
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType | None,
    ) -> None:
        told = traceback.format_exception(kind, error, trace)
        line = source.line(
            one_line(kind.__name__, str(error)),
            level="error",
            logger="python",
            step=step(),
            exception="".join(told).rstrip(),
        )
        sys.stderr.write(line + "\n")

    error_file.show_by(show)
    _show_threads_by(show)


def _source(environment: Mapping[str, str]) -> LogSource:
    # The core reports invalid values of these variables.
    rank = environment.get(contract.RANK, "")
    key = environment.get(contract.JOB_KEY, "")
    key = key if _KEY.fullmatch(key) else ""
    trace = TraceContext.of(environment)
    if trace is None:
        trace = (
            TraceContext.of_key(key)
            if key
            else TraceContext.of_launcher(environment)
        )
    job = job_id(key) if key else f"pid-{os.getpid()}"
    number = int(rank) if rank.isascii() and rank.isdigit() else 0
    return LogSource(rank=number, job=job, trace=trace.of_rank(number))


def format_new_handlers() -> None:
    """Sets the formatter, if there is one, of handlers added since."""
    formatter = _formatter
    if formatter is None:
        return
    with contextlib.suppress(ModuleNotFoundError):
        from absl import logging as absl_logging

        absl_logging.get_absl_handler().setFormatter(formatter)
    # TensorFlow's records also go to the root logger, which has a handler from
    # now on.
    tensorflows = logging.getLogger("tensorflow")
    for handler in filter(_is_standard, list(tensorflows.handlers)):
        tensorflows.removeHandler(handler)
    if not logging.root.handlers:
        logging.root.addHandler(logging.StreamHandler())
    for logger in (logging.root, *logging.root.manager.loggerDict.values()):
        # Some of them are placeholders.
        handlers = getattr(logger, "handlers", ())
        for handler in filter(_is_standard, handlers):
            handler.setFormatter(formatter)


def _is_standard(handler: logging.Handler) -> bool:
    streams = (sys.stderr, sys.stdout)
    return (
        isinstance(handler, logging.StreamHandler) and handler.stream in streams
    )


def _step_of(pid: int) -> Callable[[], int | None]:
    """Returns a function for the steps of a process; `None` in its forks."""
    core = native.core()

    def step() -> int | None:
        # A fork has copies of locks that are never released.
        if os.getpid() != pid or not core.is_initialized():
            return None
        try:
            return core.metrics().get("fit_steps") or None
        except core.StatusError:
            # The job has ended in between.
            return None

    return step


def _show_threads_by(show: error_file.Show) -> None:
    """Shows exceptions that end a thread by this function as well."""
    if threading.excepthook is not threading.__excepthook__:
        return

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            show(args.exc_type, args.exc_value, args.exc_traceback)

    threading.excepthook = of_thread
