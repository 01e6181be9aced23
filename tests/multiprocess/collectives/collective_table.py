"""Which collective works in which mode: what the tests run and docs/ shows.

`YES` and `NO` are both tested: what is refused is refused with an error.
"""

YES = "yes"
NO = "no"
# Each table is run once more by a process set, and must come out alike.
ON_A_SET = "the same"

MODES = {
    "eager": "eager",
    "function": "`tf.function`",
    "graph": "v1 graph, `Session`",
    "monitored": "`MonitoredTrainingSession`",
    "compiled": "`jit_compile=True`",
}

_COMPILED = dict.fromkeys(MODES, YES)
_NOT_COMPILED = {**_COMPILED, "compiled": NO}

FORWARD = {
    "allreduce": _COMPILED,
    "grouped_allreduce": _COMPILED,
    "reducescatter": _COMPILED,
    "grouped_reducescatter": _COMPILED,
    "broadcast": _COMPILED,
    "broadcast_": _COMPILED,
    "allgather": _NOT_COMPILED,
    "grouped_allgather": _NOT_COMPILED,
    "alltoall": _NOT_COMPILED,
    "barrier": _NOT_COMPILED,
    "join": _NOT_COMPILED,
    "rank_op": _NOT_COMPILED,
}

# Ranks join the job, and nothing else.
NOT_ON_A_SET = ("join",)
ON_A_SET_FORWARD = {
    kind: modes for kind, modes in FORWARD.items() if kind not in NOT_ON_A_SET
}

# A MonitoredTrainingSession runs what a Session runs.
GRADIENT_MODES = [mode for mode in MODES if mode != "monitored"]

# Variant -> whether it also works compiled.
GRADIENTS = {
    "allreduce Sum": True,
    "allreduce Average, scaled": True,
    "allreduce Min": True,
    "allreduce Max": True,
    "allreduce Product": True,
    "allreduce Adasum": True,
    "allreduce Adasum, scaled": True,
    "grouped_allreduce": True,
    "reducescatter Sum": True,
    "reducescatter Average, scaled": True,
    "reducescatter Min": True,
    "reducescatter Max": True,
    "reducescatter Product": True,
    "grouped_reducescatter": True,
    "broadcast": True,
    "broadcast complex64": True,
    "allgather": False,
    "allgather float16": False,
    "allgather complex128": False,
    "grouped_allgather": False,
    "alltoall": False,
    "alltoall without splits": False,
}


def gradient_outcome(variant, mode):
    """Whether a variant of `GRADIENTS` works in a mode."""
    return YES if mode != "compiled" or GRADIENTS[variant] else NO
