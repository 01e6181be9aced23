"""Exceptions of keras_ring.

Collectives of tensors raise TensorFlow's own (`tf.errors.UnavailableError` and
friends), because they are TensorFlow ops. What exchanges arrays and objects
raises a `CollectiveError`; in a program of TensorFlow it is also the exception
of TensorFlow that has the same name.
"""


class KerasRingError(RuntimeError):
    """Something at run time went wrong, not the caller's input."""


class NotInitializedError(ValueError):
    """`keras_ring.init()` has not been called (or `shutdown()` has)."""


class ConfigurationError(ValueError):
    """A `KERAS_RING_*` variable, or all of them together, make no sense."""


class StartError(KerasRingError):
    """The ranks did not come together in `init()`."""


class BuildMismatchError(ImportError):
    """The native libraries were built for another TensorFlow."""


class JobEndedError(KerasRingError):
    """Something was about to go on with other ranks in a job that has ended."""


class CollectiveError(KerasRingError):
    """A collective has failed.

    Attributes:
        code: String, why, as the runtime has it: `"UNAVAILABLE"`, and so on.
    """

    code = "UNKNOWN"

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class FailedPreconditionError(CollectiveError):
    """The ranks disagree on a collective, or there is no job (any more)."""

    code = "FAILED_PRECONDITION"


class InvalidArgumentError(CollectiveError):
    """A collective is impossible, or its name is in flight on this rank."""

    code = "INVALID_ARGUMENT"


class UnavailableError(CollectiveError):
    """A rank is lost, or has left the job."""

    code = "UNAVAILABLE"


class LocalUpdateError(KerasRingError):
    """Gradients that no rank shared with the others were about to be used."""

    # Autograph, through which the error comes out of a `tf.function`, passes
    # on a class that it knows how to construct, and makes others its own.
    __init__ = Exception.__init__


class AutoError(KerasRingError):
    """A program does what `--auto` cannot do exactly; the text says what to do.

    The program stops, rather than train something else.
    """

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class CheckpointError(KerasRingError):
    """A checkpoint could not be written, or none of them can be read."""


class ConsistencyError(KerasRingError):
    """The ranks do not hold the same weights, or do not do the same."""

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class RankFailedError(KerasRingError):
    """A rank that `keras_ring.run` started has failed."""
