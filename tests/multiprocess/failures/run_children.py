"""A rank that starts other programs, in all the ways that a program may.

A program of its own, since `multiprocessing` runs its first lines again in
each process that it spawns: those with `kr.init()`. Its checks raise; the last
one is a collective of all ranks.
"""

import gc
import json
import multiprocessing
import os
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_ROOT))

import keras_ring as kr  # noqa: E402

even = kr.ProcessSet([0])
kr.init(process_sets=[even])

_LIMIT = 60.0


def check(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(f"pid {os.getpid()}, rank {kr.rank()}: {what}")


def place() -> list[int]:
    return [
        kr.rank(),
        kr.size(),
        kr.local_rank(),
        kr.local_size(),
        kr.cross_rank(),
        kr.cross_size(),
        int(kr.is_homogeneous()),
    ]


def square(x: int) -> tuple[int, list[int], bool]:
    return x * x, place(), even.included()


def error_of_collective() -> str:
    """Returns what a collective says, in a process that is no rank."""
    import tensorflow as tf

    kr.init()  # changes nothing
    check(kr.is_initialized(), "not initialized")
    check(not any(kr.metrics().values()), "it has counted something")
    texts = []
    for process_set in (kr.global_process_set, even):
        try:
            kr.allreduce(
                tf.ones([3]), kr.Sum, name="x", process_set=process_set
            )
        except tf.errors.FailedPreconditionError as error:
            texts.append(str(error))
        else:
            check(False, "a collective did something")
    kr.shutdown()
    check(not kr.is_initialized(), "still initialized")
    kr.init()
    check(kr.is_initialized(), "init after shutdown")
    check(texts[0] == texts[1], str(texts))
    return texts[0]


def in_pools() -> None:
    expected = [(x * x, place(), even.included()) for x in range(3)]
    why = f"was started by rank {kr.rank()} (pid {os.getpid()})"
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            got = pool.map_async(square, range(3)).get(_LIMIT)
            check(got == expected, f"{method}: {got}")
            # TensorFlow takes seconds to import: on one of the ranks.
            if method == "spawn" and kr.rank() == 0:
                text = pool.apply_async(error_of_collective).get(_LIMIT)
                check(why in text and "KERAS_RING_SIZE=1" in text, text)


_PLACE = """
import keras_ring as kr
kr.init()
print(kr.rank(), kr.size())
"""


def takes_no_descriptor() -> None:
    """Of a child that listens itself, at the numbers that the rank had."""
    here = f"{kr.rank()} {kr.size()}\n"
    program = f"""
import socket
listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(40)]
{_PLACE}
# All are as they were: init of a rank sets O_NONBLOCK on what it adopts.
import os
assert all(os.get_blocking(each.fileno()) for each in listening)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        timeout=_LIMIT,
    )
    got = ended.stdout.decode(), ended.returncode
    check(got == (here, 0), f"of a child that listens itself: {got}")


def job_of_its_own() -> None:
    """Its end is not the rank's."""
    ended = subprocess.run(
        [sys.executable, "-c", f"{_PLACE}\nraise ValueError('its own')"],
        env={
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "KERAS_RING_SIZE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=_LIMIT,
    )
    got = ended.stdout.decode(), ended.returncode
    check(got == ("0 1\n", 1), f"with KERAS_RING_SIZE=1: {got}")
    error_file = Path(os.environ["KERAS_RING_ERROR_FILE"])
    check(not error_file.exists(), "the child's error is the rank's")


def nested_launcher() -> None:
    """A rank of another job: it, too, starts a process that is none."""
    program = f"""
import subprocess, sys
import keras_ring as kr
kr.init()
child = subprocess.run(
    [sys.executable, "-c", {_PLACE!r}], stdout=subprocess.PIPE, check=True
)
print(kr.rank(), kr.size(), child.stdout.decode().strip())
"""
    nested = subprocess.run(
        [
            *(sys.executable, "-m", "keras_ring", "run", "-np", "2", "--"),
            # The rank is a grandchild of what the launcher has started.
            *("sh", "-c", 'env "$@"; exit $?', "sh", sys.executable, "-c"),
            program,
        ],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        timeout=_LIMIT,
    )
    lines = sorted(line[4:] for line in nested.stdout.decode().splitlines())
    check(lines == ["0 2 0 2", "1 2 1 2"], f"of the nested job: {lines}")


def main() -> None:
    import tensorflow as tf

    in_pools()
    takes_no_descriptor()
    if kr.rank() == 1:
        job_of_its_own()
        nested_launcher()
    total = kr.allreduce(tf.ones([3]), kr.Sum, name="after")
    check(total.numpy().tolist() == [2.0] * 3, "a wrong sum")
    # They would end by themselves, a moment after this process; and what pools
    # have of semaphores, whose names the last one knows, goes before it.
    gc.collect()
    forkserver._forkserver._stop()
    resource_tracker._resource_tracker._stop()
    print("all is well", json.dumps(place()), flush=True)


if __name__ == "__main__":
    main()
