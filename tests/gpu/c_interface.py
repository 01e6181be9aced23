"""The C interface (csrc/capi/keras_ring.h), by ctypes: for programs of tests.

It needs nothing but libkeras_ring.so, and may be copied beside a program.
"""

import ctypes

ALLREDUCE, ALLGATHER, BROADCAST, BARRIER, ALLTOALL = 0, 1, 2, 3, 5
AVERAGE, SUM = 0, 1

DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
COMMITTED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool
)
ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_void_p),
)


class TensorSpec(ctypes.Structure):
    """KrTensorSpec."""

    _fields_ = (
        ("dtype", ctypes.c_int32),
        ("num_dimensions", ctypes.c_int32),
        ("dimensions", ctypes.POINTER(ctypes.c_int64)),
    )


class RequestSpec(ctypes.Structure):
    """KrRequestSpec."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_bytes", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reduce_op", ctypes.c_int32),
        ("compression", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("generation", ctypes.c_int64),
        ("prescale", ctypes.c_double),
        ("postscale", ctypes.c_double),
        ("splits", ctypes.c_void_p),
        ("num_splits", ctypes.c_size_t),
        ("tensors", ctypes.POINTER(TensorSpec)),
        ("num_tensors", ctypes.c_size_t),
        ("commit_group", ctypes.c_char_p),
        ("commit_group_bytes", ctypes.c_size_t),
    )


class Operation(ctypes.Structure):
    """KrOperation."""

    _fields_ = (
        ("inputs", ctypes.POINTER(ctypes.c_void_p)),
        ("outputs", ctypes.POINTER(ctypes.c_void_p)),
        ("context", ctypes.c_void_p),
        ("done", DONE),
        ("allocate", ALLOCATE),
        ("device_ordinal", ctypes.c_int32),
        ("wait_until_ready", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class DType(ctypes.Structure):
    """KrDType."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("bytes", ctypes.c_size_t),
        ("reducible", ctypes.c_bool),
    )


class Core:
    """The job of this process.

    Args:
        library: String, the path of libkeras_ring.so.
    """

    def __init__(self, library):
        self._library = ctypes.CDLL(library)
        self._library.KrStatusMessage.restype = ctypes.c_char_p
        self._library.KrStatusMessage.argtypes = [ctypes.c_void_p]
        for name in ("KrInit", "KrRequestCreate", "KrEnqueue", "KrCommit"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.KrRuntimeLookupCreate.restype = ctypes.c_void_p
        self._library.KrRuntimeLookupCreate.argtypes = [ctypes.c_int64]
        rows = ctypes.POINTER(DType)()
        count = self._library.KrDTypes(ctypes.byref(rows))
        # Name of a type -> its number.
        self.dtypes = {rows[i].name.decode(): i for i in range(count)}
        self._lookup = None

    def init(self):
        self.check(self._library.KrInit(None, 0, None, 0))
        self._lookup = ctypes.c_void_p(self._library.KrRuntimeLookupCreate(0))

    def shutdown(self):
        self._library.KrShutdown(b"")

    def text(self, status):
        """Returns the message of a status, which may be null."""
        return self._library.KrStatusMessage(status).decode()

    def check(self, status):
        if status:
            raise RuntimeError(self.text(status))

    def spec(self, kind, name):
        """Returns a `RequestSpec` with the usual values.

        Args:
            kind: One of the kinds above.
            name: Bytes, which live as long as the result.
        """
        made = RequestSpec()
        self._library.KrRequestSpecInit(ctypes.byref(made))
        made.name, made.name_bytes, made.kind = name, len(name), kind
        return made

    def request(self, spec):
        """Returns the request of a spec, which lives as long as the process."""
        request = ctypes.c_void_p()
        self.check(
            self._library.KrRequestCreate(
                ctypes.byref(spec), ctypes.byref(request)
            )
        )
        return request

    def enqueue(self, spec, operation):
        """Submits an operation, whose functions must live until it ends."""
        self.enqueue_request(self.request(spec), operation)

    def enqueue_request(self, request, operation):
        """Submits an operation of a request that was made before."""
        self.check(
            self._library.KrEnqueue(
                self._lookup, request, ctypes.byref(operation)
            )
        )

    def commit(self, group, done):
        """Asks for the commit of a step; `done` must live until it ends."""
        self.check(
            self._library.KrCommit(
                group, ctypes.c_size_t(len(group)), None, done
            )
        )
