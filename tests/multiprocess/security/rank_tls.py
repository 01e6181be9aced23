"""What single ranks do in test_tls.py."""

import os
import socket
import threading

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr

# Where rank 0 seems to listen: somebody who passes everything on.
_BETWEEN = "127.0.0.2"
# What is looked for. Not text, so that no message has it by chance.
_SAID = np.random.default_rng(7).standard_normal(4096).astype(np.float32)


class Recorder:
    """Passes connections on to another address, and keeps what is said.

    Args:
        port: On which it listens, and to which it passes on.
    """

    def __init__(self, port: int):
        self._port = port
        self._heard: list[bytearray] = []
        self._listener = socket.create_server((_BETWEEN, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def has_heard(self, needle: bytes) -> bool:
        return any(needle in heard for heard in self._heard)

    def num_bytes(self) -> int:
        return sum(map(len, self._heard))

    def close(self) -> None:
        # Closing alone would not end the thread's accept.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                heard = bytearray()
                self._heard.append(heard)
                threading.Thread(
                    target=self._pass, args=(source, sink, heard), daemon=True
                ).start()

    @staticmethod
    def _pass(source, sink, heard):
        try:
            while data := source.recv(1 << 16):
                heard += data
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _differ():
    """Rank 1 alone wants TLS; returns the error."""
    os.environ["KERAS_RING_TLS"] = (
        "1" if os.environ["KERAS_RING_RANK"] == "1" else "0"
    )
    try:
        kr.init()
    except kr.errors.StartError as error:
        return str(error)
    raise AssertionError("ranks that differ have met")


def _weights_after_training():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Dense(300), keras.layers.Dense(1)])
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    rng = np.random.default_rng(3)  # the same rows on all ranks
    x, y = rng.standard_normal((32, 200)), rng.standard_normal((32, 1))
    model.fit(x, y, epochs=3, batch_size=8, shuffle=False, verbose=0)
    return [weight.sum() for weight in model.get_weights()]


def _work():
    rank = kr.rank()
    told = kr.broadcast(_SAID if rank == 2 else np.zeros_like(_SAID), 2)
    assert told.numpy().tobytes() == _SAID.tobytes()
    large = tf.fill([3_000_001], float(rank + 1))
    assert (kr.allreduce(large, kr.Sum).numpy() == 6.0).all()
    given = kr.add_process_set([0, 2])
    if rank != 1:
        total = kr.allreduce(
            tf.fill([70_000], rank + 1.0), kr.Sum, process_set=given
        )
        assert (total.numpy() == 4.0).all()
    return _weights_after_training()


def job(between: str, tls: str):
    """One job through a recorder; returns what it did and what was heard."""
    rendezvous = os.environ["KERAS_RING_RENDEZVOUS"]
    port = int(rendezvous.rpartition(":")[2])
    os.environ["KERAS_RING_RENDEZVOUS"] = f"{between}:{port}"
    os.environ["KERAS_RING_TLS"] = tls
    recorder = None
    if os.environ["KERAS_RING_RANK"] == "0":
        recorder = Recorder(port)
    kr.init()
    weights = _work()
    kr.shutdown()
    os.environ["KERAS_RING_RENDEZVOUS"] = rendezvous
    if recorder is None:
        return weights, None
    recorder.close()
    needles = _SAID.tobytes()[:64], b"dense", b"KERAS_RING_"
    heard = [recorder.has_heard(needle) for needle in needles]
    return weights, (recorder.num_bytes(), heard)


def jobs():
    found = {"differ": _differ()}
    for tls in "01":
        found[tls] = job(_BETWEEN, tls)
    # The process ends with this job's threads at work.
    kr.init()
    kr.allreduce(tf.ones([10]))
    return found
