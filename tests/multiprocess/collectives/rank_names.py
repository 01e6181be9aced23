"""Random programs of functions, and programs in which names went wrong.

A program has functions with collectives, named and not, in loops and branches,
and calls of other functions, one after the other or independent of each other.
The ranks trace them at different times and in different numbers, and what they
reduce becomes ready in different orders. Threads run several programs at once.
Each value that they compute is compared with a model of the whole group.
"""

import random
import threading
from concurrent import futures

import numpy as np
import tensorflow as tf

import keras_ring as kr

_NAMES = (None, None, "same", "other")


def draw(seed, compiled, size):
    """Draws a program of `size` ranks: for each function a list of statements.

    A function calls none before itself. One that XLA compiles calls none, and
    has no loop or branch beside what does not need it: ranks whose functions
    differ, in what is late, would run them in other orders, and wait for each
    other.
    """
    rng = random.Random(seed)
    count = rng.randint(2, 4)

    def statements(number, depth, plain=False):
        return [
            statement(number, depth, plain) for _ in range(rng.randint(1, 3))
        ]

    def statement(number, depth, plain):
        kinds = ["reduce", "reduce", "pair", "pair", "group", "broadcast"]
        if depth < 2:
            kinds += ["both", "both"]
            kinds += [] if plain else ["loop", "branch", "steps"]
        if not compiled and number + 1 < count:
            kinds += ["call", "call"]
        kind = rng.choice(kinds)
        if kind in ("loop", "branch"):
            return kind, rng.randint(1, 3), statements(number, depth + 1)
        if kind == "steps":
            return kind, rng.randint(2, 4), rng.choice(_NAMES)
        if kind == "both":
            parts = [statements(number, depth + 1, compiled) for _ in "ab"]
            return kind, *parts, rng.randrange(size)
        if kind == "call":
            return kind, rng.randrange(number + 1, count)
        return (
            kind,
            *(rng.choice(_NAMES) for _ in range(2)),
            rng.randrange(size),  # who is late
            rng.randrange(size),  # the root of a broadcast
        )

    functions = [statements(number, 0) for number in range(count)]
    calls = [rng.randrange(count) for _ in range(4)]
    # Number of rows of what each rank gives: another one is another trace.
    rows = [[rng.randint(1, 3) for _ in range(size)] for _ in calls]
    # What one rank alone has called before.
    before = [rng.choice([None, *range(count)]) for _ in range(size)]
    return functions, calls, rows, before


class Model:
    """The values of all ranks, in NumPy."""

    def __init__(self, functions):
        self._functions = functions

    def call(self, number, values):
        return self._run(self._functions[number], np.array(values))

    def _run(self, statements, values):
        for kind, *how in statements:
            if kind == "call":
                values = self.call(how[0], values)
            elif kind == "loop":
                for _ in range(how[0]):
                    values = self._run(how[1], values)
            elif kind == "branch":
                # As the program has it: the sum is alike on both ranks.
                values = self._run(how[1], values)
            elif kind == "steps":
                totals = [values.sum() * (step + 1) for step in range(how[0])]
                values = 0.5 * values + 0.125 * sum(totals) - 0.25 * totals[0]
            elif kind == "both":
                first, second = (self._run(part, values) for part in how[:2])
                values = 0.5 * first - 0.25 * second
            elif kind == "reduce":
                values = values + 0.25 * values.sum()
            elif kind == "pair":
                first, second = values.sum(), (2.0 * values).sum()
                values = 0.5 * values + 0.25 * first - 0.0625 * second
            elif kind == "group":
                first, second = values.sum(), (3.0 * values).sum()
                values = 0.5 * values + 0.125 * first - 0.0625 * second
            else:
                first, second = values[how[3]], 3.0 * values[how[3]]
                values = 0.5 * values + 0.125 * first + 0.25 * second
            values = values / max(1.0, np.abs(values).max())
        return values


class Program:
    """The same in TensorFlow, on one rank.

    Args:
        functions: What was drawn.
        compiled: Boolean, whether XLA compiles them.
        thread: String, in all names. Empty for the main thread.
    """

    def __init__(self, functions, compiled, thread=""):
        self._thread = thread
        self._one = tf.Variable(1.0, dtype=tf.float64)
        self._statements = functions
        self._functions = [
            self._function(number, compiled) for number in range(len(functions))
        ]

    def call(self, number, value, rows):
        return float(self._functions[number](tf.fill([rows], value)))

    def _function(self, number, compiled):
        def function(x):
            # All rows are alike. TensorFlow orders no calls of functions that
            # only read variables.
            return self._run(
                self._statements[number], self._one * tf.reduce_max(x)
            )

        # One name for all, as methods of several objects have it.
        function.__name__ += self._thread
        return tf.function(function, autograph=False, jit_compile=compiled)

    def _run(self, statements, value):
        for kind, *how in statements:
            if kind == "call":
                value = self._functions[how[0]](value[tf.newaxis])
            elif kind == "loop":
                (value,) = tf.while_loop(
                    lambda *_: True,
                    lambda v, how=how: (self._run(how[1], v),),
                    (value,),
                    maximum_iterations=how[0],
                )
            elif kind == "branch":
                value = tf.cond(
                    tf.math.is_finite(value),
                    lambda v=value, how=how: self._run(how[1], v),
                    lambda v=value: v,
                )
            elif kind == "steps":
                value = self._steps(value, *how)
            elif kind == "both":
                first, second, late = how
                delay = _delay() if kr.rank() == late else 0.0
                # Which is first in the program is not first to be ready.
                second = self._run(second, value)
                first = self._run(first, value + delay)
                value = 0.5 * first - 0.25 * second
            else:
                value = self._collective(kind, value, *how)
            largest = kr.allreduce(tf.abs(value), kr.Max)
            value = value / tf.maximum(tf.constant(1.0, value.dtype), largest)
        return value

    def _steps(self, value, count, name):
        """A loop whose steps need nothing of each other."""

        def step(number, totals):
            late = tf.equal(number % 2, kr.rank() % 2)
            mine = value * tf.cast(number + 1, value.dtype)
            mine += tf.cond(late, _delay, lambda: tf.zeros([], value.dtype))
            total = kr.allreduce(mine, kr.Sum, name=self._named(name))
            return number + 1, totals.write(number, total)

        totals = tf.TensorArray(value.dtype, count, element_shape=[])
        _, totals = tf.while_loop(
            lambda number, _: number < count,
            step,
            (0, totals),
            maximum_iterations=count,
        )
        totals = totals.stack()
        total = tf.reduce_sum(totals)
        return 0.5 * value + 0.125 * total - 0.25 * totals[0]

    def _named(self, name):
        return None if name is None else name + self._thread

    def _collective(self, kind, value, name, second_name, late, root):
        name, second_name = self._named(name), self._named(second_name)
        if kind == "reduce":
            return value + 0.25 * kr.allreduce(value, kr.Sum, name=name)
        # Both are ready at once, but for one of them on one rank.
        delay = _delay() if kr.rank() == late else 0.0
        if kind == "pair":
            first = kr.allreduce(value + delay, kr.Sum, name=name)
            second = kr.allreduce(2.0 * value, kr.Sum, name=second_name)
            return 0.5 * value + 0.25 * first - 0.0625 * second
        if kind == "group":
            (first,) = kr.grouped_allreduce([value + delay], kr.Sum, name=name)
            (second,) = kr.grouped_allreduce(
                [3.0 * value], kr.Sum, name=second_name
            )
            return 0.5 * value + 0.125 * first - 0.0625 * second
        first = kr.broadcast(value + delay, root, name=name)
        second = kr.broadcast(3.0 * value, root, name=second_name)
        return 0.5 * value + 0.125 * first + 0.25 * second


def _delay():
    """0.0, late; in float64, which is what values are of."""
    matrix = tf.random.normal([200, 200], dtype=tf.float64)
    for _ in range(4):
        matrix = tf.matmul(matrix, matrix) * 1e-3
    return tf.reduce_sum(matrix) * 0.0


def programs(first_seed, count, compiled, threads=1):
    """Runs programs; returns how many values were compared.

    What XLA compiles calls no functions that were traced before, and no rank
    traces them without compiling them.
    """
    kr.init()
    compared = 0
    seeds = range(first_seed, first_seed + count)
    for first in seeds[::threads]:
        together = [
            concurrent(lambda n=n, f=first: run(f + n, compiled, f"_{n}"))
            for n in range(1, threads)
        ]
        compared += run(first, compiled, "")
        compared += sum(each.result(100) for each in together)
    return compared


def concurrent(function):
    result = futures.Future()

    def fill():
        try:
            result.set_result(function())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=fill, daemon=True).start()
    return result


def run(seed, compiled, thread):
    """Runs one program; returns how many values were compared."""
    functions, calls, rows, before = draw(seed, compiled, kr.size())
    model, program = Model(functions), Program(functions, compiled, thread)
    values = np.array([0.5, -0.25, 0.75, -1.0][: kr.size()])
    # Traces that the other ranks do not have. Nothing runs.
    alone = before[kr.rank()]
    if alone is not None and not compiled:
        program._functions[alone].get_concrete_function(
            tf.TensorSpec([5], tf.float64)
        )
    for number, num_rows in zip(calls, rows, strict=True):
        expected = model.call(number, values)
        found = program.call(number, values[kr.rank()], num_rows[kr.rank()])
        if not np.isclose(found, expected[kr.rank()], rtol=1e-9):
            raise AssertionError(
                f"seed {seed}, function {number}: {found},"
                f" expected {expected[kr.rank()]}"
            )
        values = expected
    return len(calls)


def broadcasts_in_one_function():
    """Two broadcasts, of which one or the other is late."""
    kr.init()
    rank = kr.rank()
    first = tf.Variable(1.0 if rank == 0 else -1.0)
    second = tf.Variable(2.0 if rank == 0 else -1.0)

    @tf.function
    def function():
        late = second if rank == 0 else first
        late.assign_add(tf.cast(_delay(), tf.float32))
        kr.broadcast_variables([first], root_rank=0)
        kr.broadcast_variables([second], root_rank=0)

    for _ in range(5):
        function()
    return float(first), float(second)


def broadcasts_in_a_tf1_graph():
    """As a program of TensorFlow 1 would build them."""
    kr.init()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(f"v{i}", initializer=float(10 * i))
            for i in range(4)
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        if kr.rank():
            session.run([v.assign(-1.0) for v in variables])
        both = [
            kr.broadcast_(variables[:1], 0, name="state"),
            kr.broadcast_(variables[1:2], 0, name="state"),
        ]
        session.run(both)
        session.run(kr.broadcast_variables(variables[2:], 0))
        return session.run(variables)


def functions_of_one_name_compiled():
    """Two that one compiled function calls, each ready at another time."""
    kr.init()

    def reduces(factor):
        @tf.function
        def function(x):
            return kr.allreduce(factor * x, kr.Sum)

        return function

    first, second = reduces(1.0), reduces(10.0)

    @tf.function(jit_compile=True)
    def both(x):
        return first(x), second(x)

    return [float(total) for total in both(tf.constant(kr.rank() + 1.0))]


def one_rank_traces_again():
    kr.init()

    @tf.function
    def function(x):
        return kr.allreduce(tf.reduce_sum(x), kr.Sum)

    totals = [float(function(tf.ones([2])))]
    # The last batch of rank 0 is smaller.
    totals.append(float(function(tf.ones([1 if kr.rank() == 0 else 2]))))
    totals.append(float(function(tf.ones([2]))))
    return totals


def threads():
    """Threads with names of their own; then two that have none."""
    kr.init()
    rank = kr.rank()
    totals, errors = {}, []

    def reduce(number, name):
        try:
            for step in range(20):
                total = kr.allreduce(
                    float(rank + 10 * number + step), kr.Sum, name=name
                )
                totals.setdefault(number, []).append(float(total))
        except ValueError as error:
            errors.append(str(error))

    def together(*targets):
        started = [threading.Thread(target=t) for t in targets]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    together(
        *(
            lambda number=number: reduce(number, f"thread {number}")
            for number in range(3)
        )
    )
    # A thread that has ended leaves the others their turn.
    together(lambda: reduce(3, None))
    reduce(4, None)
    together(lambda: reduce(5, None))
    return totals, errors


def calls():
    """Calls beside collectives, where another one is late on each rank."""
    kr.init()
    rank = kr.rank()
    weight = tf.Variable(1.0)

    @tf.function
    def reduce(x):
        return kr.allreduce(weight * x, kr.Sum)

    @tf.function
    def named(x):
        return kr.allreduce(weight * x, kr.Sum, name="n")

    def late(first, second):
        delay = tf.cast(_delay(), tf.float32)
        return (first + delay, second) if rank == 0 else (first, second + delay)

    @tf.function
    def twice(first, second):
        first, second = late(first, second)
        return reduce(first), reduce(second)

    @tf.function
    def called(first, second):
        first, second = late(first, second)
        return kr.allreduce(first, kr.Sum, name="n"), named(second)

    @tf.function
    def branch(first, second):
        first, second = late(first, second)
        return kr.allreduce(first, kr.Sum, name="n"), tf.cond(
            first > 0.0,
            lambda: kr.allreduce(second, kr.Sum, name="n"),
            lambda: second,
        )

    @tf.function
    def other_branches(first, second):
        """One rank is in one branch, the other in the other."""
        return tf.cond(
            tf.equal(rank, 0),
            lambda: kr.allreduce(first, kr.Sum, name="n"),
            lambda: kr.allreduce(second, kr.Sum, name="n"),
        )

    mine = tf.constant(rank + 1.0), tf.constant(10.0 * (rank + 1.0))
    return {
        name: [np.array(function(*mine)).tolist() for _ in range(5)]
        for name, function in (
            ("twice", twice),
            ("called", called),
            ("branch", branch),
            ("other_branches", other_branches),
        )
    }
