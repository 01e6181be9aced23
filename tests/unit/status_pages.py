"""Writes status pages as the ranks of a job do, byte for byte."""

import json
import os
import struct
import time
from pathlib import Path

JOB = "0123456789ab"
UNITS = {
    "buckets": "buckets",
    "last_buckets": "buckets",
    "late_ns": "ns",
    "execute_ns": "ns",
    "data_wait_ns": "ns",
    "checkpoint_ns": "ns",
    "pending": "tensors",
    "submitted_ns": "ns",
    "done_ns": "ns",
    "activity": "kind",
    "activity_ns": "ns",
    "fit_steps": "steps",
    "samples": "samples",
    "epoch": "epochs",
    "data_bytes_sent": "bytes",
}


class PageFile:
    """The page of a rank, in a job's directory that is made for it.

    `told` replaces what the page says of itself.
    """

    def __init__(self, directory, rank=0, size=1, job=JOB, **told):
        pid = told.get("pid", os.getpid())
        self.path = Path(directory, job, f"rank.{rank}.{pid}.page")
        Path(directory).mkdir(mode=0o700, exist_ok=True)
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self.offsets = {
            name: 8192 + 8 * index for index, name in enumerate(UNITS)
        }
        self.told = {
            "rank": rank,
            "size": size,
            "local_rank": rank,
            "host": "node1",
            "pid": os.getpid(),
            "job": job,
            "started_unix_ns": time.time_ns(),
            "started_ns": time.monotonic_ns(),
            "command": "python train.py",
            "cwd": "/work",
            "counters": [
                [name, unit, self.offsets[name]] for name, unit in UNITS.items()
            ],
            **told,
        }
        text = json.dumps(self.told).encode()
        data = bytearray(16384)
        struct.pack_into("<8sII", data, 0, b"KRSTATUS", 1, len(text))
        data[64 : 64 + len(text)] = text
        self.path.write_bytes(data)
        self.path.chmod(0o600)

    def write(self, offset, data):
        with open(self.path, "r+b") as file:
            file.seek(offset)
            file.write(data)

    def set(self, **counters):
        for name, value in counters.items():
            self.write(self.offsets[name], struct.pack("<Q", value))

    def fail(self, text, sequence=2):
        data = text.encode()
        head = struct.pack("<II", sequence, len(data))
        self.write(12288, head + data)
