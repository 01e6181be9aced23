"""The floors of csrc, and a cc_library for each.

tests/lint/floors.py reads FLOORS from here, for its rule on includes.
"""

# Room of csrc -> the rooms that it may include, beside itself. The order is
# that of the floors: nothing includes what comes after it.
FLOORS = {
    "csrc/base": [],
    "csrc/device": ["csrc/base"],
    "csrc/cuda": [
        "csrc/base",
        "csrc/device",
    ],
    "csrc/cuda/kernels": [
        "csrc/base",
        "csrc/device",
        "csrc/cuda",
    ],
    "csrc/comm/net": ["csrc/base"],
    "csrc/comm/store": [
        "csrc/base",
        "csrc/comm/net",
    ],
    "csrc/comm/host": [
        "csrc/base",
        "csrc/comm/net",
    ],
    "csrc/comm/rendezvous": [
        "csrc/base",
        "csrc/comm/net",
        "csrc/comm/store",
    ],
    "csrc/comm/transport": [
        "csrc/base",
        "csrc/comm/net",
        "csrc/comm/host",
    ],
    "csrc/tls": [
        "csrc/base",
        "csrc/comm/net",
    ],
    "csrc/collective/kernels": ["csrc/base"],
    "csrc/collective": [
        "csrc/base",
        "csrc/device",
        "csrc/collective/kernels",
    ],
    "csrc/collective/shm": [
        "csrc/base",
        "csrc/device",
        "csrc/collective/kernels",
        "csrc/collective",
        "csrc/comm/net",
        "csrc/comm/host",
    ],
    "csrc/collective/net": [
        "csrc/base",
        "csrc/device",
        "csrc/collective/kernels",
        "csrc/collective",
        "csrc/comm/rendezvous",
        "csrc/comm/transport",
    ],
    "csrc/collective/hierarchy": [
        "csrc/base",
        "csrc/device",
        "csrc/collective/kernels",
        "csrc/collective",
        "csrc/collective/shm",
        "csrc/collective/net",
        "csrc/comm/net",
        "csrc/comm/host",
        "csrc/comm/rendezvous",
        "csrc/comm/transport",
    ],
    "csrc/collective/mpi": [
        "csrc/base",
        "csrc/device",
        "csrc/collective",
        "csrc/collective/net",
        "csrc/collective/hierarchy",
        "csrc/comm/rendezvous",
        "csrc/comm/transport",
    ],
    "csrc/collective/cuda": [
        "csrc/base",
        "csrc/device",
        "csrc/cuda",
        "csrc/cuda/kernels",
        "csrc/collective/kernels",
        "csrc/collective",
        "csrc/collective/shm",
        "csrc/comm/net",
        "csrc/comm/host",
    ],
    "csrc/control": [
        "csrc/base",
        "csrc/device",
    ],
    "csrc/runtime/diagnostics": [
        "csrc/base",
        "csrc/device",
        "csrc/control",
    ],
    "csrc/runtime": [
        "csrc/base",
        "csrc/device",
        "csrc/cuda",
        "csrc/comm/net",
        "csrc/comm/host",
        "csrc/comm/rendezvous",
        "csrc/comm/transport",
        "csrc/collective",
        "csrc/collective/shm",
        "csrc/collective/net",
        "csrc/collective/hierarchy",
        "csrc/collective/cuda",
        "csrc/collective/mpi",
        "csrc/control",
        "csrc/runtime/diagnostics",
    ],
    "csrc/runtime/elastic": [
        "csrc/base",
        "csrc/device",
        "csrc/comm/net",
        "csrc/comm/rendezvous",
        "csrc/control",
        "csrc/runtime",
    ],
    "csrc/capi": [
        "csrc/base",
        "csrc/cuda",
        "csrc/device",
        "csrc/comm/host",
        "csrc/comm/net",
        "csrc/comm/rendezvous",
        "csrc/control",
        "csrc/runtime/diagnostics",
        "csrc/runtime",
        "csrc/runtime/elastic",
    ],
}

def _library(folder):
    return folder[len("csrc/"):].replace("/", "_")

def libraries_of(folders):
    """Returns the labels of rooms' libraries.

    Args:
      folders: the rooms.
    """
    return [":" + _library(folder) for folder in folders]

def floor(folder, copts, srcs = None, deps = [], linkopts = []):
    """Declares the library of a room, named after its folder.

    Args:
      folder: the room, one of FLOORS.
      copts: the compiler flags.
      srcs: the sources. Defaults to all that lie in the room.
      deps: what it links beside the rooms that FLOORS lets it use.
      linkopts: the linker's flags.
    """
    native.cc_library(
        name = _library(folder),
        srcs = native.glob([folder + "/*.cc"]) if srcs == None else srcs,
        hdrs = native.glob([folder + "/*.h"]),
        # Text that a source includes.
        textual_hdrs = native.glob([folder + "/*.inc"], allow_empty = True),
        copts = copts,
        linkopts = linkopts,
        linkstatic = True,
        deps = libraries_of(FLOORS[folder]) + deps,
    )

def floors(copts, apart):
    """Declares the libraries of all rooms.

    Args:
      copts: the compiler flags.
      apart: rooms that are declared by `floor`.
    """
    for folder in FLOORS:
        if folder not in apart:
            floor(folder, copts = copts)
