"""What memory and loopback can do: no reduction can be faster.

Also a program: `yardsticks.py NUM_PROCESSES NUM_BYTES` prints a JSON object.
"""

import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

_RUNS = 7


def measure(num_processes, num_bytes):
    """Returns GB/s of each yardstick, measured in processes of their own."""
    done = subprocess.run(
        [sys.executable, __file__, str(num_processes), str(num_bytes)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def _copy(barrier, times, num_bytes):
    source = np.ones(num_bytes, np.uint8)
    target = np.ones_like(source)
    for _ in range(_RUNS):
        barrier.wait(timeout=60)
        began = time.perf_counter()
        np.copyto(target, source)
        times.put(time.perf_counter() - began)


def _copy_seconds(num_processes, num_bytes):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(num_processes)
    times = context.Queue()
    copiers = [
        context.Process(target=_copy, args=(barrier, times, num_bytes))
        for _ in range(num_processes)
    ]
    for copier in copiers:
        copier.start()
    seconds = [times.get(timeout=60) for _ in range(_RUNS * num_processes)]
    for copier in copiers:
        copier.join()
    return statistics.median(seconds)


def _receive(server, num_bytes):
    buffer = bytearray(num_bytes)
    connection, _ = server.accept()
    with connection:
        for _ in range(_RUNS):
            rest = memoryview(buffer)
            while rest:
                rest = rest[connection.recv_into(rest) :]
            connection.sendall(b"k")


def _loopback_seconds(num_bytes):
    # Threads: both ends are in system calls, which hold no lock of Python's.
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = threading.Thread(target=_receive, args=(server, num_bytes))
        receiver.start()
        address = server.getsockname()
        sent = bytes(num_bytes)
        seconds = []
        with socket.create_connection(address, timeout=60) as client:
            for _ in range(_RUNS):
                began = time.perf_counter()
                client.sendall(sent)
                client.recv(1)
                seconds.append(time.perf_counter() - began)
        receiver.join()
    return statistics.median(seconds)


def main(num_processes, num_bytes):
    """Prints the yardsticks."""
    gigabytes = num_bytes / 1e9
    together = num_processes * gigabytes
    print(
        json.dumps(
            {
                "memcpy, one process": gigabytes / _copy_seconds(1, num_bytes),
                f"memcpy, {num_processes} at once, together": together
                / _copy_seconds(num_processes, num_bytes),
                "loopback TCP, one way": gigabytes
                / _loopback_seconds(num_bytes),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
