"""What is said where hosts do not reach the first one."""

import contextlib
import threading
import types

import pytest

from benchmarks.idle_agents import PretendedHost, loop_over
from keras_ring.launch.frames import FrameReader
from keras_ring.launch.patience import Patience
from keras_ring.launch.preflight import HostsError, Preflight

ADDRESS = "192.0.2.1"


def answer(host, answers, over):
    """Answers what the launcher asks, by the kind of the question."""
    reader = FrameReader()
    while not over.wait(0.01):
        for frame in reader.feed(host.heard()):
            if frame.kind in answers:
                kind, fields = answers[frame.kind]
                host.say(kind, **fields)


@pytest.fixture
def preflight():
    """A look at two hosts, the second of which does not reach the first."""
    with contextlib.ExitStack() as stack:
        hosts = [PretendedHost(number) for number in range(2)]
        loop = stack.enter_context(loop_over(hosts))
        over = threading.Event()
        threads = []

        def start(full):
            first = {
                "listen": (
                    "listening",
                    {"problem": "", "addresses": [ADDRESS], "port": 7},
                ),
                "count": ("counted", {"full": full}),
            }
            second = {
                "reach": ("reached", {"address": ADDRESS, "reached": False})
            }
            for host, answers in zip(hosts, (first, second), strict=True):
                host.greet()
                threads.append(
                    threading.Thread(target=answer, args=(host, answers, over))
                )
                threads[-1].start()
            plan = types.SimpleNamespace(ports=None, patience=Patience())
            return Preflight(plan, loop, lambda: False)

        yield start
        over.set()
        for thread in threads:
            thread.join()
        for host in hosts:
            host.connection.end(0.0)
            host.close()


def test_a_firewall_is_suspected(preflight):
    with pytest.raises(HostsError) as failure:
        preflight(False)._choose_address()
    text = str(failure.value)
    assert text.startswith(f"host1 cannot reach host0 at {ADDRESS}, port 7: ")
    assert "there is a firewall, or" in text
    assert text.endswith(
        "more than 3.33 s to answer (--connect-timeout gives it more)"
    )


def test_a_port_that_is_flooded_is_no_firewall(preflight):
    with pytest.raises(HostsError) as failure:
        preflight(True)._choose_address()
    text = str(failure.value)
    assert text.startswith(f"host1 cannot reach host0 at {ADDRESS}, port 7: ")
    assert "somebody else has opened so many connections" in text
    assert "firewall" not in text
