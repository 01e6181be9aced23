"""Runs the corpus of each fuzz target, as tests/fuzz/CMakeLists.txt does."""

def fuzz_replays(names, copts, deps):
    """Declares one test per target, named NAME_replay.

    Args:
      names: the targets; the source of each is tests/fuzz/NAME_fuzz.cc.
      copts: the compiler flags of all of them.
      deps: what all of them link.
    """
    for name in names:
        native.cc_test(
            name = name + "_replay",
            srcs = [
                "tests/fuzz/{}_fuzz.cc".format(name),
                "tests/fuzz/replay.cc",
            ] + native.glob(["tests/fuzz/*.h"]),
            args = ["tests/fuzz/corpus/" + name],
            copts = copts,
            data = native.glob(["tests/fuzz/corpus/{}/*".format(name)]),
            linkstatic = True,
            deps = deps,
        )
