"""Exceptions of keras_ring.

Collectives of tensors raise the exceptions of TensorFlow, such as
`tf.errors.UnavailableError`, because they are TensorFlow ops. Collectives of
arrays and objects raise a `CollectiveError`. In a program that uses TensorFlow,
it is also the TensorFlow exception of the same name.
"""


class KerasRingError(RuntimeError):
    """Base class of errors at run time that are not due to wrong arguments."""


class NotInitializedError(ValueError):
    """Raised before `keras_ring.init()` or after `shutdown()`."""


class ConfigurationError(ValueError):
    """Raised if `KERAS_RING_*` variables are invalid or contradictory."""


class StartError(KerasRingError):
    """Raised if the ranks did not connect in `init()`, or could not start."""


class BuildMismatchError(ImportError):
    """Raised if native libraries are missing, or built for another version."""


class JobEndedError(KerasRingError):
    """Raised if an operation needs other ranks after the job has ended."""


class CollectiveError(KerasRingError):
    """Raised if a collective has failed.

    Attributes:
        code: String, the status code of the runtime, such as `"UNAVAILABLE"`.
    """

    code = "UNKNOWN"

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class FailedPreconditionError(CollectiveError):
    """Raised if ranks disagree on a collective, or there is no job."""

    code = "FAILED_PRECONDITION"


class InvalidArgumentError(CollectiveError, ValueError):
    """Raised if a collective is impossible, or its name is in use.

    A name is in use while another collective of that name runs on this rank.
    """

    code = "INVALID_ARGUMENT"


class UnavailableError(CollectiveError):
    """Raised if a rank is lost or has left the job."""

    code = "UNAVAILABLE"


class AbortedError(CollectiveError):
    """Raised if an elastic job has lost the root of a broadcast.

    No other rank has its values. The ranks that are left may broadcast again,
    from another root.
    """

    code = "ABORTED"


class DataLossError(CollectiveError):
    """Raised if an elastic job has lost a rank, and this one its result.

    Ranks that have the result of the collective have gone on, and cannot give
    it to this one.
    """

    code = "DATA_LOSS"


class LocalUpdateError(KerasRingError):
    """Raised if gradients would be applied that ranks have not exchanged."""

    # AutoGraph raises an error of a `tf.function` again. It keeps the class if
    # it can construct it, and replaces other classes.
    __init__ = Exception.__init__


class AutoError(KerasRingError):
    """Raised if a program does something that `--auto` cannot do exactly.

    The text says what to do. The program stops, because it would train another
    model otherwise.
    """

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class CheckpointError(KerasRingError):
    """Raised if a checkpoint cannot be written, or none can be read."""


class ConsistencyError(KerasRingError):
    """Raised if the ranks differ in their weights, data or steps."""

    __init__ = Exception.__init__  # as in `LocalUpdateError`


class RankFailedError(KerasRingError):
    """Raised if a rank that `keras_ring.run` started has failed."""
