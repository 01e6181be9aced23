"""What a rank of a case does. Runs in a process forked from the driver."""

import ctypes
import os
import resource
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator

import keras
import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.faults.catalogue import Case

ELEMENTS = 1 << 18
# Long enough for everything; the driver ends the process before.
FOREVER = 600.0


class Orders:
    """What the driver has told this rank: a thread reads it.

    Args:
        fd: Where the orders come, a line each.
    """

    def __init__(self, fd: int) -> None:
        self.go = threading.Event()
        self._fd = fd
        self._blocked = socket.socketpair()
        self._kept: list[int] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with os.fdopen(self._fd) as orders:
            for order in orders:
                word = order.strip()
                if word == "exit":
                    os._exit(3)
                elif word == "closed network":
                    self._start_cutting(_close)
                elif word == "half-open":
                    self._start_cutting(self._swallow)
                elif word == "oom":
                    _use_memory()
                elif word == "go":
                    self.go.set()

    def _start_cutting(self, cut: Callable[[int], None]) -> None:
        threading.Thread(target=self._cut, args=(cut,), daemon=True).start()

    def _cut(self, cut: Callable[[int], None]) -> None:
        """Cuts all connections, and from then on whatever is made."""
        done: set[int] = set()
        until = time.monotonic() + FOREVER
        while time.monotonic() < until:
            for fd in _connections():
                try:
                    # Not the number: another connection may get it.
                    inode = os.fstat(fd).st_ino
                    if inode not in done:
                        done.add(inode)
                        cut(fd)
                except OSError:
                    continue  # closed meanwhile
            time.sleep(0.002)

    def _swallow(self, fd: int) -> None:
        # What was the connection stays open, and nobody is at its end: as when
        # a host vanishes. What this rank writes goes nowhere.
        self._kept.append(os.dup(fd))
        hole = self._blocked[0].fileno()
        os.set_blocking(hole, False)
        os.dup2(hole, fd)

    def wait(self, raises: bool) -> None:
        """Waits for the fault; ends the program if it is one of the program."""
        self.go.wait(FOREVER)
        if raises:
            raise RuntimeError("the disk is full")


def _close(fd: int) -> None:
    with socket.socket(fileno=os.dup(fd)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterator[int]:
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            # Not through a socket object: that would own the descriptor.
            with socket.socket(fileno=os.dup(fd)) as found:
                if found.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                found.getpeername()
        except OSError:
            continue
        yield fd


def _use_memory() -> None:
    """Uses memory until the kernel ends the process, or refuses it.

    Where the driver may not make a memory cgroup, a limit of the process
    stands in for it, and the program ends as programs do that meet one.
    """
    if not os.environ.get("FAULTS_CGROUP"):
        used = int(open("/proc/self/statm").read().split()[0])
        limit = used * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    taken = []
    try:
        while True:
            taken.append(np.ones(1 << 20))
    except MemoryError:
        os.abort()


def _step(mode: str) -> Callable[[], object]:
    if mode == "session":
        graph = tf.Graph()
        with graph.as_default():
            total = kr.allreduce(tf.ones([ELEMENTS]), name="g")[0]
        session = tf.compat.v1.Session(graph=graph)
        return lambda: session.run(total)
    x = tf.ones([ELEMENTS])

    def step():
        return kr.allreduce(x, name="g")

    if mode == "eager":
        return step
    return tf.function(step, jit_compile=mode == "xla")


def _fit(case: Case, is_victim: bool, orders: Orders, tell) -> None:
    model = keras.Sequential([keras.layers.Dense(8)])
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.SGD(0.01)),
        loss="mse",
        run_eagerly=case.mode == "eager",
        jit_compile=case.mode == "xla",
    )

    class Wait(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                tell("ready")
                if is_victim:
                    orders.wait(case.fault == "exception")

    x = np.ones((1 << 16, 4), "float32")
    callbacks = [kr.callbacks.BroadcastGlobalVariablesCallback(), Wait()]
    model.fit(
        x, x[:, :1], batch_size=1, verbose=0, callbacks=callbacks, epochs=100
    )


def _monitored(is_victim: bool, raises: bool, orders: Orders, tell) -> None:
    v1 = tf.compat.v1

    class Wait(v1.train.SessionRunHook):
        def __init__(self):
            self.runs = 0

        def after_run(self, run_context, run_values):
            self.runs += 1
            if self.runs == 3:
                tell("ready")
                if is_victim:
                    orders.wait(raises)

    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        weight = v1.get_variable("weight", initializer=tf.ones([ELEMENTS]))
        total = kr.allreduce(weight, name="g")[0]
        # Without it, a `MonitoredSession` makes new sessions for ever.
        hooks = [kr.BroadcastGlobalVariablesHook(0), Wait()]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while True:
                session.run(total)


def run(case: Case, rank: int, orders_fd: int, tell) -> None:
    """Comes to the moment of the case, tells the driver, and goes on."""
    orders = Orders(orders_fd)
    is_victim = rank == case.victim
    raises = is_victim and case.fault == "exception"
    if case.moment == "init":
        tell("ready")
        if raises:
            orders.wait(raises)
        kr.init()
        step = _step(case.mode)
        while True:
            step()
    kr.init()
    if case.moment == "callback":
        if case.mode == "session":
            _monitored(is_victim, raises, orders, tell)
        _fit(case, is_victim, orders, tell)
    step = _step(case.mode)
    for _ in range(3):
        step()
    tell("ready")
    if case.moment == "shutdown":
        orders.go.wait(FOREVER)
        if raises:
            orders.wait(raises)
        kr.shutdown()
    elif case.moment == "negotiation":
        if is_victim:
            _be_away(case, orders)
        step()
        if case.fault in ("pause", "busy"):
            return
        while True:
            step()
    else:
        _run_on(case, step, orders, raises, is_victim)


def _be_away(case: Case, orders: Orders) -> None:
    orders.wait(case.fault == "exception")
    if case.fault == "busy":
        _hold_the_interpreter()


def _hold_the_interpreter() -> None:
    """Lets no other thread run Python for 1.5 heartbeat limits."""
    hold = ctypes.PyDLL(None).usleep
    hold(int(1.5e6 * float(os.environ["KERAS_RING_HEARTBEAT_TIMEOUT"])))


def _run_on(case, step, orders, raises, is_victim) -> None:
    if case.fault in ("pause", "busy"):
        # Until the slow one has come back, and all have seen it.
        end = kr.size() * [0.0]
        while not end[case.victim]:
            step()
            if is_victim and orders.go.is_set():
                if case.fault == "busy":
                    _hold_the_interpreter()
                end[case.victim] = 1.0
            told = kr.broadcast(tf.constant(end), case.victim, name="end")
            end = told.numpy().tolist()
        return

    def go_on():
        while True:
            step()

    if raises:
        # The main thread fails while another one is in a collective.
        threading.Thread(target=_quietly(go_on), daemon=True).start()
        time.sleep(0.2)
        orders.wait(raises)
    go_on()


def _quietly(function):
    def call():
        try:
            function()
        except tf.errors.OpError:
            return

    return call
