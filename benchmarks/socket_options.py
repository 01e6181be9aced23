"""Compares options of sockets, for one stream between two hosts.

    python -m benchmarks.socket_options [--rate=10gbit] [--rounds=5]

Needs root: the hosts are those of tests/lab. For each option in turn, and again
each round: GB/s, and the CPU seconds of sender and receiver per GB.

- zerocopy: `MSG_ZEROCOPY`; the kernel sends from the program's pages and tells
  when it needs them no longer, or that it has copied them nevertheless.
- busy poll: `SO_BUSY_POLL`, 50 us; who waits asks the network card.

https://docs.kernel.org/networking/msg_zerocopy.html
"""

import argparse
import json
import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import time

from benchmarks.comparing.plan import ROOT
from tests.lab import lab as lab_module

OPTIONS = ("plain", "zerocopy", "busy poll")
_PORT = 47011
_CHUNK = 1 << 20
_PENDING = 32  # sends whose pages the kernel may have
_TIMEOUT = 60.0
# Of Linux; Python does not name them all.
_SO_ZEROCOPY = 60
_MSG_ZEROCOPY = 0x4000000
_SO_BUSY_POLL = 46
_COPIED = 1  # ee_code: SO_EE_CODE_ZEROCOPY_COPIED


def _cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class ZeroCopies:
    """Counts sends whose pages the kernel has, and those that it has copied."""

    def __init__(self, connection):
        self._connection = connection
        # Of errors alone, which needs no flag: what is told comes as one.
        self._poll = select.poll()
        self._poll.register(connection, 0)
        self.sent = self.done = self.copied = 0

    def wait(self, pending):
        """Returns when no more than so many sends are pending."""
        while self.sent - self.done > pending:
            try:
                _, found, _, _ = self._connection.recvmsg(
                    0, 512, socket.MSG_ERRQUEUE
                )
            except BlockingIOError:
                self._poll.poll(_TIMEOUT * 1e3)
                continue
            for _, _, data in found:
                # struct sock_extended_err: errno, origin, type, code, pad,
                # info, data; info and data are the first and the last send.
                fields = struct.unpack("=IBBBBII", data[:16])
                count = fields[6] - fields[5] + 1
                self.done += count
                self.copied += count * (fields[3] & _COPIED)


def send(address, option, seconds):
    """Sends for so long; prints bytes, seconds, CPU seconds, copied sends."""
    connection = _connect(address)
    _set(connection, option)
    data = memoryview(bytearray(_CHUNK))
    flags = _MSG_ZEROCOPY if option == "zerocopy" else 0
    copies = ZeroCopies(connection)
    total = 0
    began, cpu = time.perf_counter(), _cpu()
    while time.perf_counter() < began + seconds:
        sent = connection.send(data, flags)
        total += sent
        if flags:
            copies.sent += 1
            copies.wait(_PENDING)
    if flags:
        copies.wait(0)
    took = time.perf_counter() - began
    used = _cpu() - cpu
    connection.close()
    copied = copies.copied / max(1, copies.sent)
    print(json.dumps([total, took, used, copied]))


def receive(option):
    """Receives until the other ends; prints its CPU seconds."""
    with socket.create_server(("", _PORT)) as server:
        server.settimeout(_TIMEOUT)
        print("listening", flush=True)
        connection, _ = server.accept()
    connection.settimeout(None)
    _set(connection, option)
    data = bytearray(_CHUNK)
    cpu = _cpu()
    while connection.recv_into(data):
        pass
    print(json.dumps(_cpu() - cpu))


def _connect(address):
    connection = socket.create_connection((address, _PORT), _TIMEOUT)
    connection.settimeout(None)
    return connection


def _set(connection, option):
    if option == "zerocopy":
        connection.setsockopt(socket.SOL_SOCKET, _SO_ZEROCOPY, 1)
    if option == "busy poll":
        connection.setsockopt(socket.SOL_SOCKET, _SO_BUSY_POLL, 50)


def _side(lab, host, *words):
    command = [sys.executable, "-m", "benchmarks.socket_options", *words]
    return subprocess.Popen(
        lab.on(host, *command), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def measure(lab, option, seconds):
    """Returns GB/s, CPU s/GB of both sides, and the share that was copied."""
    receiver = _side(lab, "h1", "--receive", option)
    try:
        receiver.stdout.readline()
        sender = _side(
            *(lab, "h0", "--send", option, "--seconds", str(seconds))
        )
        sent, _ = sender.communicate(timeout=_TIMEOUT + seconds)
        received, _ = receiver.communicate(timeout=_TIMEOUT)
    finally:
        receiver.kill()
    total, took, used, copied = json.loads(sent)
    gigabytes = total / 1e9
    return (
        gigabytes / took,
        used / gigabytes,
        json.loads(received) / gigabytes,
        copied,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("--rate", help="of the link; default: unlimited")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--send", choices=OPTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--receive", choices=OPTIONS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.receive:
        return receive(arguments.receive)
    if arguments.send:
        return send("kr-h1", arguments.send, arguments.seconds)
    if why := lab_module.missing():
        raise SystemExit(f"there can be no hosts here: {why}")
    found = {option: [] for option in OPTIONS}
    with lab_module.lab(2) as lab:
        lab("up", "2", *(("--rate", arguments.rate) if arguments.rate else ()))
        for _ in range(arguments.rounds):
            for option in OPTIONS:
                found[option].append(measure(lab, option, arguments.seconds))
    print("| option | GB/s | sender, CPU s/GB | receiver, CPU s/GB | copied |")
    print("|---|---|---|---|---|")
    for option, rows in found.items():
        rate, sender, receiver, copied = map(
            statistics.median, zip(*rows, strict=True)
        )
        print(
            f"| {option} | {rate:.2f} | {sender:.3f} | {receiver:.3f} |"
            f" {copied:.0%} |"
        )


if __name__ == "__main__":
    main()
