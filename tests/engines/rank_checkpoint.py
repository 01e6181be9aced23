"""A training that goes on: says where it is, and how often it has begun."""

import os
import socket
import sys
from pathlib import Path

import tensorflow as tf

import keras_ring as kr

kr.init()
total = float(kr.allreduce(tf.constant(float(kr.rank())), op=kr.Sum))
runs = 0
if kr.rank() == 0:
    checkpoint = Path(os.environ["CHECKPOINT_DIR"]) / "runs"
    runs = int(checkpoint.read_text()) if checkpoint.exists() else 0
    checkpoint.write_text(str(runs + 1))
runs = int(kr.broadcast(tf.constant(runs), root_rank=0))
threads = os.environ["TF_NUM_INTRAOP_THREADS"]
line = f"{socket.gethostname()} sum={total} runs={runs} threads={threads}\n"
# A file of its own, for an actor's output goes elsewhere.
if len(sys.argv) > 1:
    (Path(sys.argv[1]) / f"rank.{kr.rank()}").write_text(line)
os.write(1, line.encode())
