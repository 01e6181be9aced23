"""The rooms of `keras_ring`: what each holds, and what it may import.

This table is the one source of the lint of imports (`floors`), of the tests
that a change runs (`tests/tiers`), and of the tables and the drawing in
`docs/architecture.md`.
"""

from __future__ import annotations

import dataclasses
import enum


class Needs(enum.IntEnum):
    """What a room may load from outside, beside the standard library."""

    LITTLE = 0
    """Nothing that takes time: what a launcher loads."""
    NUMPY = 1
    """Anything but a framework."""
    FRAMEWORK = 2
    """TensorFlow or Keras."""


@dataclasses.dataclass(frozen=True)
class Room:
    """A folder or a module of `keras_ring`, without the rooms in it.

    Attributes:
        path: String, the path within `keras_ring`, without `.py`.
        holds: String, a description in Markdown.
        uses: The paths of the rooms that it may import. Each stands earlier
            in the table. "__init__" stands for the public names.
        needs: A `Needs`.
        pulls: The parts of the long tier that a change in it pulls into the
            gate (`tests/tiers/path_map.py`).
        is_face: Boolean, whether it only names what other rooms hold.
    """

    path: str
    holds: str
    uses: tuple[str, ...] = ()
    needs: Needs = Needs.FRAMEWORK
    pulls: frozenset[str] = frozenset({"parity", "examples"})
    is_face: bool = False

    @property
    def box(self) -> str:
        """The box of the drawing that has this room."""
        # These use the rest of `launch` and the whole package.
        above = ("launch/cli", "launch/ray")
        return self.path if self.path in above else self.folder

    @property
    def folder(self) -> str:
        """The folder of `keras_ring` that has this room."""
        return self.path.partition("/")[0]


def _parts(*names: str) -> frozenset[str]:
    return frozenset(names)


_BACKENDS = (
    "protocol",
    "core",
    "torch",
    "jax",
    "tensorflow",
    "keras/scope",
    "keras/backends",
)
_OPS = (*_BACKENDS, "keras/lanes")
_AGREEMENT = (*_OPS, "keras/agreement")
_OPTIMIZER = (*_AGREEMENT, "keras/optimizer")
_MODEL = (*_OPTIMIZER, "keras/model")
_CALLBACKS = (
    *(*_MODEL, "observe", "keras/fit", "keras/data", "keras/checkpoint"),
)
_SAVED = _parts("parity", "examples", "saves")
_LAUNCHER = _parts("launcher-kills", "faults", "examples", "hosts")

ROOMS = (
    Room(
        "protocol",
        "what launcher and ranks share: the contract, error files, network "
        "interfaces, cores",
        needs=Needs.LITTLE,
        pulls=_LAUNCHER,
    ),
    Room(
        "observe",
        "looks at running jobs from outside, for `top`, `status` and "
        "Prometheus ([watching.md](watching.md))",
        needs=Needs.LITTLE,
        pulls=_parts(),
    ),
    Room(
        "observe/timeline",
        "reads the timelines that ranks have left, writes files for viewers "
        "([timeline.md](timeline.md))",
        uses=("protocol",),
        needs=Needs.NUMPY,
        pulls=_parts(),
    ),
    Room(
        "observe/report",
        "`keras-ring report`: what a timeline tells ([report.md](report.md))",
        uses=("observe", "observe/timeline"),
        needs=Needs.NUMPY,
        pulls=_parts(),
    ),
    Room(
        "core/engines",
        "what else starts processes (MPI, Slurm, Kubernetes, torchrun and "
        "others), and how these become ranks",
        uses=("protocol",),
        needs=Needs.LITTLE,
        pulls=_parts("engines", "hosts"),
    ),
    Room(
        "core",
        "a job without any framework: native libraries, `init`, `shutdown`, "
        "this rank's topology, process sets, collectives of NumPy arrays and "
        "of objects, memory that ranks share, autotune "
        "([autotune.md](autotune.md)); lists what frameworks do when a job "
        "starts",
        uses=("protocol", "core/engines", "observe/timeline"),
        needs=Needs.NUMPY,
        pulls=_parts("programs", "stress", "faults", "parity", "examples"),
    ),
    Room(
        "torch",
        "data parallel training with PyTorch: collectives of its tensors, "
        "`DistributedOptimizer` ([pytorch.md](pytorch.md))",
        uses=("core",),
        pulls=_parts(),
    ),
    Room(
        "jax",
        "data parallel training with JAX: collectives of its arrays, "
        "`DistributedOptimizer` for Optax ([jax.md](jax.md))",
        uses=("core",),
        pulls=_parts(),
    ),
    Room(
        "mxnet",
        "data parallel training with MXNet: collectives of its NDArrays, "
        "`DistributedTrainer` for Gluon ([mxnet.md](mxnet.md))",
        uses=("core",),
        pulls=_parts(),
    ),
    Room(
        "tensorflow",
        "collectives as TensorFlow ops: reductions, gathers, their gradients, "
        "names, XLA",
        uses=("protocol", "core"),
        pulls=_parts("programs", "parity", "examples"),
    ),
    Room(
        "keras/scope",
        "the part of a program that runs now: its `fit`, pass over data, step",
        needs=Needs.LITTLE,
    ),
    Room(
        "keras/backends",
        "which Keras a program uses; what Keras code asks of the framework "
        "that Keras computes with: TensorFlow, PyTorch or JAX",
        uses=("protocol", "core", "torch", "jax", "tensorflow", "keras/scope"),
    ),
    Room(
        "keras/lanes",
        "what differs between Keras 2 and Keras 3; the events that features "
        "subscribe to, and what these are bound to",
        uses=_BACKENDS,
    ),
    Room(
        "keras/agreement",
        "what ranks must have in common: paths, values, data, the end of a "
        "training; a look at the batch that a model is trained on next",
        uses=_OPS,
    ),
    Room(
        "keras/optimizer",
        "gradients: reduction, optimizers, tape, the guard against updates of "
        "one rank",
        uses=_AGREEMENT,
    ),
    Room(
        "keras/model",
        "a model on all ranks: its variables, seeds, broadcast, batch "
        "normalization",
        uses=_OPTIMIZER,
        pulls=_SAVED,
    ),
    Room(
        "keras/fit",
        "how Keras' own `fit` and callbacks are adapted, measured and shown",
        uses=(*_OPTIMIZER, "observe"),
        pulls=_SAVED,
    ),
    Room("keras/data", "each rank's part of the data", uses=_AGREEMENT),
    Room(
        "keras/checkpoint",
        "saves and restores the state of a training",
        uses=_MODEL,
        pulls=_parts("saves"),
    ),
    Room("keras/callbacks", "Keras callbacks", uses=_CALLBACKS, pulls=_SAVED),
    Room(
        "keras/elastic",
        "trainings that ranks leave and join, in the way of Horovod's elastic",
        uses=(*_CALLBACKS, "keras/callbacks"),
        pulls=_parts(),
    ),
    Room(
        "keras/inference",
        "`evaluate`, `predict`",
        uses=(*_CALLBACKS, "keras/callbacks"),
    ),
    Room(
        "keras/startup",
        "what begins in TensorFlow and Keras with a job, once the program has "
        "imported them",
        uses=(*_CALLBACKS, "keras/callbacks", "keras/elastic"),
    ),
    Room(
        "unchanged",
        "trains a program of one process on all ranks ([auto.md](auto.md))",
        uses=(
            *(*_CALLBACKS, "keras/callbacks"),
            *("keras/inference", "keras/startup"),
        ),
        pulls=_parts("auto"),
    ),
    Room(
        "auto",
        "begins that when it is imported",
        uses=("unchanged",),
        pulls=_parts("auto"),
        is_face=True,
    ),
    Room("callbacks", "a public path", uses=("keras/callbacks",), is_face=True),
    Room(
        "checkpoint", "a public path", uses=("keras/checkpoint",), is_face=True
    ),
    Room("data", "a public path", uses=("keras/data",), is_face=True),
    Room("schedules", "a public path", uses=("keras/optimizer",), is_face=True),
    Room(
        "_former_paths",
        "modules by their former paths, for pickles of earlier versions",
        is_face=True,
    ),
    Room(
        "job",
        "`init`, `shutdown` of a program of TensorFlow or Keras",
        uses=("protocol", "core", "keras/startup", "auto"),
        is_face=True,
    ),
    Room(
        "bench",
        "`keras-ring bench`, which uses the package as a program does",
        uses=("__init__", "protocol", "core", "torch", "jax"),
        pulls=_parts("benchmarks"),
    ),
    Room(
        "launch/elastic",
        "who the members of an elastic job are, and which steps count",
        needs=Needs.LITTLE,
        pulls=_LAUNCHER,
    ),
    Room(
        "launch",
        "starts ranks, watches them, ends them",
        uses=(
            *("protocol", "observe", "observe/timeline", "core"),
            "launch/elastic",
        ),
        needs=Needs.LITTLE,
        pulls=_LAUNCHER,
    ),
    Room(
        "launch/cli",
        "the verbs of `keras-ring`",
        uses=(
            *("protocol", "observe", "observe/report", "core/engines", "core"),
            *("bench", "launch"),
        ),
        needs=Needs.LITTLE,
        pulls=_parts("examples"),
    ),
    Room(
        "launch/ray",
        "`keras_ring.ray.run`: ranks that are actors of Ray",
        uses=("protocol", "core/engines", "auto", "job", "launch"),
        pulls=_parts("engines"),
    ),
    Room("ray", "a public path", uses=("launch/ray",), is_face=True),
)
BY_PATH = {room.path: room for room in ROOMS}


def direct_uses(room: Room) -> tuple[str, ...]:
    """Returns the rooms that a room uses, without those that these use."""
    return tuple(
        each
        for each in room.uses
        if not any(
            each in BY_PATH[other].uses
            for other in room.uses
            if other in BY_PATH
        )
    )
