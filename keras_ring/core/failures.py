"""The exceptions of collectives, by the codes of the runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from keras_ring import errors
from keras_ring.core import last_exception, native

_BY_CODE: dict[str, type[errors.CollectiveError]] = {
    each.code: each
    for each in (
        errors.FailedPreconditionError,
        errors.InvalidArgumentError,
        errors.UnavailableError,
        errors.AbortedError,
        errors.DataLossError,
    )
}


def class_of(code: str) -> type[errors.CollectiveError]:
    """Returns the exception class for a code."""
    found: type[errors.CollectiveError]
    found = _BY_CODE.get(code, errors.CollectiveError)
    return found


def _error_of_ours(code: str, message: str) -> Exception:
    error: errors.CollectiveError = class_of(code)(message)
    error.code = code
    return error


_make: Callable[[str, str], Exception] = _error_of_ours


def make_by(make: Callable[[str, str], Exception]) -> None:
    """Sets the function that makes exceptions, for a framework.

    So they can be exceptions of the framework as well.

    Args:
        make: Function of a code, such as `"UNAVAILABLE"`, and a message, that
            returns an exception.
    """
    global _make
    _make = make


def error_of(code: str, message: str) -> Exception:
    """Returns the exception for a status of the runtime.

    It is also recorded in `last_exception`, in case the program catches it and
    ends.

    Args:
        code: String, such as `"UNAVAILABLE"`.
        message: String, the text of the exception.

    Returns:
        A `CollectiveError`.
    """
    error = _make(code, message)
    last_exception.note(error)
    return error


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raises the exceptions of `error_of` for those of the extension module."""
    try:
        yield
    except native.core().StatusError as error:
        raise error_of(*error.args) from None
