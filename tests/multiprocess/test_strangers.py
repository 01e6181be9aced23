"""Whoever connects without the job's key is dropped; training goes on."""

import contextlib
import os
import socket
import struct

import psutil

from tests.harness import run_ranks
from tests.multiprocess import rank_jobs


def ports_of(pids):
    return sorted(
        {
            connection.laddr.port
            for pid in pids
            for connection in psutil.Process(pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }
    )


def strangers(port):
    """Connects in several bad ways; returns the connections left open."""
    silent = []
    payloads = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        os.urandom(4096),
        struct.pack("<I", 0xFFFFFFFF) * 64,  # huge lengths
        b"\x00" * 1000,
        b"KRNG" + os.urandom(200),  # something like a hello
        b"\x01",
        b"",
    ]
    for payload in payloads:
        connection = socket.create_connection(("127.0.0.1", port), timeout=5)
        with contextlib.suppress(OSError):
            connection.sendall(payload)
        if len(payload) < 2:
            silent.append(connection)  # says nothing more, and stays
        else:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass
            connection.close()
    return silent


def test_strangers_do_not_disturb():
    opened = []

    def disturb(running):
        for rank in range(3):
            running.wait_for(rank, "training", timeout=60)
        ports = ports_of(running.pids)
        # One listener per rank; that of rank 0 serves the store as well.
        assert len(ports) == 3, ports
        for _ in range(5):
            for port in ports:
                opened.extend(strangers(port))

    result = run_ranks(
        rank_jobs.train_for, 3, args=(15.0,), on_start=disturb, deadline=90
    )
    for connection in opened:
        connection.close()
    steps = [value[0] for value in result.values]
    rejected = [value[1] for value in result.values]
    assert min(steps) == max(steps) > 50
    assert min(rejected) >= 5 * 4, rejected


def test_strangers_cannot_keep_a_job_from_starting():
    """They come before and while the ranks meet, and stay silent."""
    opened = []

    def disturb(running):
        found = 0
        while found < 2:
            try:
                ports = ports_of(running.pids)
            except psutil.NoSuchProcess:
                break
            for port in ports[:1]:
                opened.extend(strangers(port))
                found += 1

    result = run_ranks(
        rank_jobs.train_for, 2, args=(1.0,), on_start=disturb, deadline=90
    )
    for connection in opened:
        connection.close()
    assert result.values[0][0] > 5
