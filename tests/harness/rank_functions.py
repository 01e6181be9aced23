"""What the ranks do in the harness' own tests."""

import os
import subprocess
import sys
import time
import unittest

from tests.harness import notify


def rank() -> int:
    return int(os.environ["KERAS_RING_RANK"])


def add(left: int, right: int) -> tuple[int, int]:
    return rank(), left + right


def host() -> str:
    return os.environ["KERAS_RING_HOST_ID"]


def fail_on(which: int) -> None:
    if rank() == which:
        raise ValueError("the reason")
    time.sleep(60)


def sleep() -> None:
    time.sleep(60)


def skip() -> None:
    raise unittest.SkipTest("no such device")


def leave_process() -> int:
    return subprocess.Popen(["sleep", "60"], start_new_session=True).pid


def leave_shared_memory(name: str) -> None:
    if rank() == 0:
        with open(f"/dev/shm/{name}", "w") as file:
            file.write("x")


def wait_for_harm() -> None:
    notify("ready")
    time.sleep(60)
    sys.exit(1)
