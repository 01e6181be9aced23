"""A cc_test per file of tests/cpp, as tests/cpp/CMakeLists.txt has them."""

def cpp_tests(srcs, hdrs, copts, deps):
    """Declares one test per source, named after the file.

    Args:
      srcs: the sources; no two may have the same file name.
      hdrs: headers beside them that any of them may include.
      copts: the compiler flags of all of them.
      deps: what all of them link.
    """
    for src in srcs:
        native.cc_test(
            name = src.rpartition("/")[2][:-len(".cc")],
            timeout = "moderate",
            srcs = [src] + hdrs,
            copts = copts,
            linkstatic = True,
            deps = deps,
        )
