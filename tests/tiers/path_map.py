"""Which parts of the long tier a change pulls into the gate.

A part is tests of one kind: those with the mark `long("part")`, or the target
`make test-part`. What protects a floor runs in the gate when files of that
floor change, and always in the long tier.
"""

from collections.abc import Iterable

from tests.lint import rooms

# Part -> what it adds to the gate. Those in MAKE are targets of the Makefile;
# the others are tests.
PARTS = {
    "sanitized": "the C++ tests under sanitizers, and the fuzz targets",
    "programs": "random programs of collectives with many seeds",
    "stress": "ranks that allocate and reduce at random",
    "faults": "the table of faults, random faults in trainings, ranks killed "
    "at each place",
    "launcher-kills": "launchers killed at random",
    "saves": "programs and ranks killed while they save, more ways to go on",
    "engines": "jobs under MPI, Slurm and Ray, which have to be installed",
    "hosts": "more placements of ranks on hosts, and the lab of hosts itself",
    "large": "tensors and models of gigabytes",
    "auto": "every script of one process, on two and on three ranks",
    "parity": "every case of Keras, on Keras 3 and Keras 2",
    "examples": "all examples, as users start them, in both lanes",
    "benchmarks": "every command of performance.md",
}
MAKE = ("sanitized",)
ALL = frozenset(PARTS)
NONE: frozenset[str] = frozenset()

# Beginning of a path -> the parts that protect what lies there. The longest
# beginning counts. A path without one pulls everything.
_NATIVE = frozenset({"programs", "stress", "faults"})
_SANITIZED = frozenset({"sanitized"})
PATH_MAP: dict[str, frozenset[str]] = {
    "csrc/base/": _NATIVE | _SANITIZED,
    "csrc/capi/": _NATIVE | _SANITIZED,
    "csrc/base/options": _SANITIZED | {"faults"},
    "csrc/collective/": _NATIVE | _SANITIZED | {"large"},
    "csrc/collective/mpi/": _NATIVE | _SANITIZED | {"engines"},
    "csrc/device/": _NATIVE | _SANITIZED,
    # Jobs without a device do not come here.
    "csrc/cuda/": _SANITIZED,
    "csrc/collective/cuda/": _SANITIZED,
    "csrc/comm/": _NATIVE | _SANITIZED,
    "csrc/comm/transport/mpi_": _NATIVE | _SANITIZED | {"engines"},
    "csrc/comm/rendezvous/": _NATIVE | _SANITIZED | {"hosts", "engines"},
    "csrc/control/": _NATIVE | _SANITIZED,
    "csrc/runtime/": _NATIVE | _SANITIZED,
    "csrc/tls/": _SANITIZED | {"faults"},
    "csrc/testing/": _SANITIZED,
    "csrc/CMakeLists.txt": _NATIVE | _SANITIZED,
    "tf_ops/": _NATIVE | {"large", "parity"},
    "tf_ops/CMakeLists.txt": frozenset({"parity"}),
    "xla_ops/": _NATIVE | {"parity"},
    "keras_ring/": frozenset({"parity", "examples"}),
    **{f"keras_ring/{room.path}": room.pulls for room in rooms.ROOMS},
    "keras_ring/core/arena.py": frozenset({"stress", "large"}),
    "keras_ring/core/operation": _NATIVE,
    "keras_ring/core/core.cc": _NATIVE,
    "keras_ring/core/autotune/": frozenset({"programs"}),
    "requirements-engines.txt": frozenset({"engines"}),
    "examples/": frozenset({"examples"}),
    "examples/README.md": NONE,
    "benchmarks/": frozenset({"benchmarks"}),
    "docs/": NONE,
    "deploy/": NONE,
    "docs/engines/": frozenset({"engines"}),
    "docs/keras_guide.md": frozenset({"examples"}),
    "docs/migration.md": frozenset({"examples"}),
    "docs/mistakes.md": frozenset({"examples"}),
    "docs/performance.md": frozenset({"benchmarks"}),
    "docs/tutorial.md": frozenset({"examples"}),
    "mkdocs.yml": NONE,
    "requirements-docs.txt": NONE,
    "requirements-torch.txt": NONE,
    "requirements-jax.txt": NONE,
    "requirements-mxnet.txt": NONE,
    "README.md": frozenset({"examples"}),
    ".ci/landed": NONE,
    ".gitignore": NONE,
    ".clang-format": NONE,
    ".pre-commit-config.yaml": NONE,
    "BUILD": NONE,
    "WORKSPACE": NONE,
    ".bazel": NONE,
    "tools/bazel/": NONE,
    "tools/cmake/": _SANITIZED,
    "tools/generate_": NONE,
    "tools/gpu_check": NONE,
    "tools/cuda_declarations.cc": NONE,
    "tools/make_ptx.py": NONE,
    "tools/make_report_picture.py": NONE,
    "tools/make_site_picture.py": NONE,
    "tools/make_top_picture.py": NONE,
    "tools/screenshot.py": NONE,
    "tools/site/": NONE,
    "tools/test_package.sh": NONE,
    "tools/torch.cfg": NONE,
    "tools/jax.cfg": NONE,
    # Wrong, it leaves nothing to test.
    "tools/build_core.sh": NONE,
    "tools/build_backend.py": NONE,
    "tools/check_source_archive.py": NONE,
    "tools/target_frameworks.py": NONE,
    "tools/fuzz.sh": _SANITIZED,
    "tools/make_fuzz_corpus.sh": NONE,
    "tools/test_cpp.sh": _SANITIZED,
    "CMakeLists.txt": _SANITIZED,
    "setup.py": NONE,
    "CHANGELOG.md": NONE,
    "CITATION.cff": NONE,
    "CONTRIBUTING.md": NONE,
    "LICENSE": NONE,
    "SECURITY.md": NONE,
    "MANIFEST.in": NONE,
    # Tests run when they have changed; those of the long tier by their part.
    "tests/": NONE,
    "tests/cpp/": _SANITIZED,
    "tests/cpp/CMakeLists.txt": _SANITIZED,
    "tests/fuzz/": _SANITIZED,
    "tests/harness/": ALL,
    "tests/lab/": frozenset({"hosts"}),
    "tests/lab/slurm.py": frozenset({"engines"}),
    "tests/tiers/": ALL,
    "tests/tiers/mutations.py": NONE,
    "tests/conftest.py": ALL,
    "tests/model/": NONE,
    "tests/multiprocess/programs/": frozenset({"programs"}),
    "tests/multiprocess/collectives/collective_model.py": frozenset(
        {"programs"}
    ),
    "tests/multiprocess/faults/": frozenset({"faults"}),
    "tests/multiprocess/failures/chaos.py": frozenset({"faults"}),
    "tests/multiprocess/security/unauthenticated_peers.py": NONE,
    "tests/multiprocess/security/bad_connections.py": NONE,
    "tests/multiprocess/zero_copy/rank_zero_copy": frozenset({"stress"}),
    "tests/launcher/kills.py": frozenset({"launcher-kills"}),
    "tests/auto/": frozenset({"auto"}),
    "tests/keras/parity/": frozenset({"parity"}),
    "tests/keras2/": frozenset({"parity"}),
    "tests/benchmarks/": frozenset({"benchmarks"}),
}


def pulled_by(paths: Iterable[str] | None) -> frozenset[str]:
    """Returns the parts that these changed paths pull; None: nobody knows."""
    if paths is None:
        return ALL
    parts: frozenset[str] = NONE
    for path in paths:
        beginnings = [start for start in PATH_MAP if path.startswith(start)]
        if not beginnings:
            return ALL
        parts |= PATH_MAP[max(beginnings, key=len)]
    return parts
