"""A rank that says where it is, and what all ranks sum up to."""

import os
import socket

import tensorflow as tf

import keras_ring as kr

kr.init()
total = float(kr.allreduce(tf.constant(float(kr.rank())), op=kr.Sum))
# At once: what starts the ranks may mix what they write.
line = (
    f"{socket.gethostname()} sum={total}"
    f" local={kr.local_rank()}/{kr.local_size()}"
    f" cross={kr.cross_rank()}/{kr.cross_size()}\n"
)
os.write(1, line.encode())
