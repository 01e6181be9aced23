"""Measures the cost of messages and the memory bandwidth of a processor.

The simulation of large jobs (docs/scale.md) uses these numbers. The messages go
over loopback by plain system calls, from memory that is in no cache.
"""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

# Bytes of a message between hosts, and of one that is almost empty.
_LARGE = 60 << 10
_SMALL = 64
# Bytes; larger than all caches.
_MEMORY = 64 << 20
# Number of measurements, of which the fastest counts: other work of the machine
# makes them slower.
_ROUNDS = 5
_SECONDS = 0.1


@dataclass(frozen=True)
class Processor:
    """Costs of this machine.

    Args:
        message_us: CPU microseconds for a send, whatever its size.
        send_ns_per_byte: CPU nanoseconds for each byte sent.
        receive_ns_per_byte: CPU nanoseconds for each byte received.
        memory_gb_per_s: GB per second that one thread reads and writes.
        host_memory_gb_per_s: GB per second that all processors read and write
            together.
    """

    message_us: float
    send_ns_per_byte: float
    receive_ns_per_byte: float
    memory_gb_per_s: float
    host_memory_gb_per_s: float

    def settings(self) -> dict[str, float]:
        """Returns the rounded costs by their names in the simulation."""
        return {
            name: float(f"{value:.3g}") for name, value in asdict(self).items()
        }


def measure() -> Processor:
    """Measures this machine, which takes seconds.

    Raises:
        OSError: If loopback cannot be used.
    """
    large = [_stream(_LARGE) for _ in range(_ROUNDS)]
    send_large = min(per_send for per_send, _ in large)
    receive_large = min(per_byte for _, per_byte in large)
    send_small = min(_stream(_SMALL)[0] for _ in range(_ROUNDS))
    send_byte = max(send_large - send_small, 0.0) / (_LARGE - _SMALL)
    message = max(send_small - _SMALL * send_byte, 0.0)
    # A receive takes all bytes that have arrived, so there are fewer of them.
    receive_byte = max(receive_large * _LARGE - message, 0.0) / _LARGE
    return Processor(
        message_us=message * 1e6,
        send_ns_per_byte=send_byte * 1e9,
        receive_ns_per_byte=receive_byte * 1e9,
        memory_gb_per_s=_memory(1),
        host_memory_gb_per_s=_memory(len(os.sched_getaffinity(0))),
    )


def table(found: Processor) -> str:
    """Returns the costs as text, for people and for the simulation."""
    settings = found.settings()
    rows = [f"{name:22} {value:g}" for name, value in settings.items()]
    words = " ".join(f"{name}={value:g}" for name, value in settings.items())
    return "\n".join(
        [*rows, "", "for scale_benchmark (docs/scale.md):", f"  {words}"]
    )


def _stream(message: int) -> tuple[float, float]:
    """Returns CPU seconds for a send, and for a byte received."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with sender, receiver, ThreadPoolExecutor(1) as other:
        receiving = other.submit(_receive, receiver)
        per_send = _send(sender, message)
        sender.shutdown(socket.SHUT_WR)
        return per_send, receiving.result()


def _send(sender: socket.socket, message: int) -> float:
    pieces = [
        piece.data for piece in np.zeros((_MEMORY // _LARGE, message), "u1")
    ]
    end = time.perf_counter() + _SECONDS
    used = time.thread_time()
    sends = 0
    while time.perf_counter() < end:
        for piece in pieces:
            sender.sendall(piece)
        sends += len(pieces)
    return (time.thread_time() - used) / sends


def _receive(receiver: socket.socket) -> float:
    memory = np.zeros((_MEMORY // _LARGE, _LARGE), "u1")
    pieces = [piece.data for piece in memory]
    used = time.thread_time()
    received = 0
    while True:
        for piece in pieces:
            got = receiver.recv_into(piece)
            if got == 0:
                return (time.thread_time() - used) / max(received, 1)
            received += got


def _memory(threads: int) -> float:
    """Returns the GB per second that a number of threads read and write."""
    with ThreadPoolExecutor(threads) as all_threads:
        return max(
            sum(all_threads.map(lambda _: _copy(), range(threads)))
            for _ in range(_ROUNDS)
        )


def _copy() -> float:
    source = np.ones(_MEMORY, "u1")
    target = np.zeros(_MEMORY, "u1")
    end = time.perf_counter() + _SECONDS
    began = time.perf_counter()
    copies = 0
    while time.perf_counter() < end:
        np.copyto(target, source)
        copies += 1
    return 2 * copies * _MEMORY / (time.perf_counter() - began) / 1e9
