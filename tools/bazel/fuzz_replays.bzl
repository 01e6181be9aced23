"""Runs the corpus of each fuzz target, as tests/fuzz/CMakeLists.txt does."""

def fuzz_replays(srcs, copts, deps):
    """Declares one test per target, named NAME_replay.

    Args:
      srcs: the targets, tests/fuzz/NAME_fuzz.cc.
      copts: the compiler flags of all of them.
      deps: what all of them link.
    """
    for src in srcs:
        name = src.rpartition("/")[2][:-len("_fuzz.cc")]
        native.cc_test(
            name = name + "_replay",
            srcs = [
                src,
                "tests/fuzz/replay.cc",
            ] + native.glob(["tests/fuzz/*.h"]),
            args = ["tests/fuzz/corpus/" + name],
            copts = copts,
            data = native.glob(["tests/fuzz/corpus/{}/*".format(name)]),
            linkstatic = True,
            deps = deps,
        )
