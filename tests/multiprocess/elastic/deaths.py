"""Deaths of ranks at given seconds, in the programs of these tests."""

import os
import signal
import threading


def timer(text, number):
    """Returns a timer that kills this process, to be started.

    Args:
        text: String, such as "1:0.5,3:0.9": the seconds by processes.
        number: Integer, this process. It lives on if it is not in `text`.
    """
    deaths = dict(death.split(":") for death in text.split(",") if death)
    deadly = threading.Timer(
        float(deaths.get(str(number), 1e6)),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    deadly.daemon = True
    return deadly
