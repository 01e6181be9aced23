"""A rank that says where it is, and what all ranks sum up to."""

import os
import socket

import tensorflow as tf

import keras_ring as kr

kr.init()
# More chunks than are under way at a time, of values that all sum exactly.
values = tf.range(3_000_001, dtype=tf.float32) % 1021
for step in range(5):
    large = kr.allreduce(values + float(kr.rank() + step), op=kr.Sum)
    ranks = kr.size() * (kr.size() - 1) / 2
    expected = kr.size() * (values + step) + ranks
    assert bool(tf.reduce_all(large == expected)), step
total = float(kr.allreduce(tf.constant(float(kr.rank())), op=kr.Sum))
# At once: what starts the ranks may mix what they write.
line = (
    f"{socket.gethostname()} sum={total}"
    f" local={kr.local_rank()}/{kr.local_size()}"
    f" cross={kr.cross_rank()}/{kr.cross_size()}\n"
)
os.write(1, line.encode())
