"""How a rank tells the test that it has come to some point."""

import os

FD_VARIABLE = "KERAS_RING_TEST_NOTIFY_FD"


def notify(text: str) -> None:
    """Tells the test process that this rank has come to a point.

    The other side is `RunningRanks.wait_for`.

    Args:
        text: Name of the point, on one line.
    """
    os.write(int(os.environ[FD_VARIABLE]), f"{text}\n".encode())
