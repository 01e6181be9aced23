"""What single ranks do in test_collectives.py. Imported by every rank."""

import time

import numpy as np
import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.collectives import collective_model as model
from tests.multiprocess.collectives import collective_table as table
from tests.multiprocess.collectives import rank_group
from tests.multiprocess.programs.rank_programs import Call

_REFUSED = (NotImplementedError, tf.errors.InvalidArgumentError)


def in_mode(mode, function, *tensors):
    """Calls `function` in a mode of the table; returns NumPy arrays."""
    if mode in ("eager", "function", "compiled"):
        if mode != "eager":
            function = tf.function(
                function, autograph=False, jit_compile=mode == "compiled"
            )
        return tf.nest.map_structure(lambda t: t.numpy(), function(*tensors))
    arrays = [tensor.numpy() for tensor in tensors]
    with tf.Graph().as_default():
        places = [
            tf.compat.v1.placeholder(tensor.dtype, tensor.shape)
            for tensor in tensors
        ]
        results = function(*places)
        feed = dict(zip(places, arrays, strict=True))
        if mode == "graph":
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                return session.run(results, feed)
        tf.compat.v1.train.get_or_create_global_step()
        with tf.compat.v1.train.MonitoredTrainingSession() as session:
            return session.run(results, feed)


def _calls_of(kind, size):
    """A call for every dtype; of a group, one with all of them."""
    moved = "gather" in kind or kind in ("broadcast", "alltoall")
    dtypes = model.MOVABLE if moved else model.REDUCIBLE
    shape = (2,) if "gather" in kind or kind == "alltoall" else (5, 2)
    rows = [(rank * 2) % 3 for rank in range(size)]
    details = {
        "allgather": {"rows": [rows] * len(dtypes)},
        "broadcast": {"root": size - 1},
        "alltoall": {"splits": [rows] * size, "given": True},
    }.get(
        kind.removeprefix("grouped_"),
        {"op": "Average", "prescale": 1.0, "postscale": 1.0},
    )
    members = [(dtype, shape) for dtype in dtypes]
    groups = [[member] for member in members]
    if kind.startswith("grouped_"):
        groups = [members]
    return [
        Call(
            {
                "kind": kind,
                "name": f"{kind}.{number}",
                "seed": 1,
                "members": group,
                **details,
            },
            rank_group.process_set(),
        )
        for number, group in enumerate(groups)
    ]


def _forward(kind, mode, exact):
    calls = _calls_of(kind, rank_group.size())
    counts = [len(call.own) for call in calls]

    def function(*tensors):
        rest = iter(tensors)
        return [
            call.make([next(rest) for _ in range(count)])
            for call, count in zip(calls, counts, strict=True)
        ]

    tensors = [tf.constant(array) for call in calls for array in call.own]
    results = in_mode(mode, function, *tensors)
    for call, result in zip(calls, results, strict=True):
        call.check(result, exact, (kind, mode))


def _broadcast_in_place(mode):
    root = rank_group.in_job(1)
    arguments = {"process_set": rank_group.process_set()}
    initial = [
        np.arange(3.0) + rank_group.rank(),
        np.array(rank_group.rank() == 1),
    ]
    eager = [tf.Variable(array) for array in initial]

    def function():
        variables = eager
        if mode in ("graph", "monitored"):
            variables = [tf.compat.v1.Variable(array) for array in initial]
            with tf.control_dependencies(
                [tf.compat.v1.global_variables_initializer()]
            ):
                assigned = kr.broadcast_(variables, root, **arguments)
        else:
            assigned = kr.broadcast_(variables, root, **arguments)
        return [tf.identity(variable) for variable in assigned]

    values = in_mode(mode, function)
    np.testing.assert_array_equal(values[0], np.arange(3.0) + 1)
    assert values[1]
    if mode not in ("graph", "monitored"):
        np.testing.assert_array_equal(eager[0], np.arange(3.0) + 1)


def _barrier(mode):
    def function():
        waited = kr.barrier(
            name=f"barrier.{mode}", process_set=rank_group.process_set()
        )
        with tf.control_dependencies([] if waited is None else [waited]):
            return tf.constant(7)

    assert in_mode(mode, function) == 7


def _join(mode):
    def function():
        # In a function, the join waits for it.
        total = kr.allreduce(tf.constant(2.0), kr.Sum, name=f"join.{mode}")
        before = [total] if mode in ("graph", "monitored") else []
        with tf.control_dependencies(before):
            return total, tf.convert_to_tensor(kr.join())

    total, last = in_mode(mode, function)
    assert total == 2.0 * kr.size()
    assert last.dtype == np.int32
    assert kr.allgather_object(int(last)) == [int(last)] * kr.size()


def _topology(mode):
    def function():
        return [
            kr.rank_op(process_set=rank_group.process_set()),
            kr.size_op(process_set=rank_group.process_set()),
            kr.process_set_included_op(rank_group.process_set().process_set_id),
            kr.local_rank_op(),
            kr.local_size_op(),
        ]

    values = in_mode(mode, function)
    assert [value.dtype for value in values] == [np.int32] * 5
    assert [int(value) for value in values] == [
        rank_group.rank(),
        rank_group.size(),
        1,
        kr.local_rank(),
        kr.local_size(),
    ]


def forward_table(exact, ranks=None):
    """Returns, by collective and mode, whether it worked.

    Args:
        exact: Whether sums are made in the order of the ranks.
        ranks: Those of the process set that does it. Defaults to all. The
            others return `None`.
    """
    if not rank_group.begin(ranks):
        return None
    special = {
        "broadcast_": _broadcast_in_place,
        "barrier": _barrier,
        "join": _join,
        "rank_op": _topology,
    }
    outcomes = {}
    kinds = table.FORWARD if ranks is None else table.ON_A_SET_FORWARD
    for kind, modes in kinds.items():
        outcomes[kind] = {}
        for mode in modes:
            try:
                if kind in special:
                    special[kind](mode)
                else:
                    _forward(kind, mode, exact)
                outcomes[kind][mode] = table.YES
            except _REFUSED as error:
                # Only what is said to be refused: else the error comes out.
                if modes[mode] == table.YES:
                    raise
                assert "compile" in str(error) or "XLA" in str(error), error
                outcomes[kind][mode] = table.NO
    return outcomes


def _error_of(function):
    try:
        function()
    except (tf.errors.OpError, ValueError, TypeError) as error:
        # TensorFlow puts before and behind it what it makes of its types.
        text = str(error).split("}} ")[-1].split(" [Op:")[0]
        return type(error).__name__, text
    return None


def errors():
    """Returns what calls that cannot be right end with."""
    kr.init()
    rank, size = kr.rank(), kr.size()
    four = tf.ones([4, 2])
    last = rank == size - 1
    found = {}
    for name, splits in {
        "negative": [-1, 5],
        "too few": [4],
        "wrong sum": [1, 2],
    }.items():
        splits = splits + [0] * (size - 2 if len(splits) > 1 else 0)
        found[name] = _error_of(
            lambda splits=splits, name=name: kr.alltoall(
                four, splits if last else [4] + [0] * (size - 1), name=name
            )
        )
    found["indivisible"] = _error_of(
        lambda: kr.alltoall(tf.ones([size * 2 + last, 1]), name="indivisible")
    )
    found["shape"] = _error_of(
        lambda: kr.reducescatter(tf.ones([4 + last]), name="shape")
    )
    found["reduce op"] = _error_of(
        lambda: kr.reducescatter(
            four, kr.Max if last else kr.Min, name="reduce op"
        )
    )
    found["group"] = _error_of(
        lambda: kr.grouped_allgather([four] * (1 + last), name="group")
    )
    # These are found out without the others.
    for function in (kr.allgather, kr.alltoall, kr.reducescatter):
        found[f"scalar {function.__name__}"] = _error_of(
            lambda function=function: function(1.0)
        )
    for function in (kr.allreduce, kr.reducescatter):
        found[f"complex {function.__name__}"] = _error_of(
            lambda function=function: function(tf.ones([2], tf.complex64))
        )
    found["float splits"] = _error_of(lambda: kr.alltoall(four, [1.0, 3.0]))
    found["flat splits"] = _error_of(lambda: kr.alltoall(four, 4))
    found["no splits"] = _error_of(
        lambda: kr.alltoall(four, tf.zeros([0], tf.int32))
    )
    found["no list"] = _error_of(lambda: kr.grouped_allgather(four))
    # The job goes on.
    assert kr.allreduce(1, kr.Sum, name="after").numpy() == size
    return found


def groups_are_one_entry():
    """Returns how many entries two groups took, and what empty ones give."""
    kr.init()
    before = kr.metrics()["entries"]
    tensors = [tf.ones([3, 2]), tf.ones([0], tf.int64), tf.ones([1], tf.bool)]
    kr.grouped_allgather(tensors, name="gathers")
    kr.grouped_reducescatter(tensors[:2], kr.Sum, name="scatters")
    kr.barrier()  # so that the count is there
    return (
        kr.metrics()["entries"] - before - 1,
        kr.grouped_allgather([]),
        kr.grouped_reducescatter([]),
        kr.broadcast_([], 0),
    )


def one_comes_late(late_rank, turns, seconds):
    """Returns how often this rank was the last, and by how many seconds."""
    kr.init()
    kr.barrier()
    before = kr.metrics()
    for turn in range(turns):
        if kr.rank() == late_rank:
            time.sleep(seconds)
        kr.allreduce(tf.ones([4]), name=f"late.{turn % 2}")
    after = kr.metrics()
    times, late = (
        after[name] - before[name] for name in ("last_buckets", "late_ns")
    )
    return times, late / 1e9


def received_splits_have_the_type_of_splits():
    kr.init()
    ones = [1] * kr.size()
    for dtype in (tf.int32, tf.int64, tf.uint8):
        _, received = kr.alltoall(
            tf.range(kr.size()), tf.constant(ones, dtype), name="typed"
        )
        assert received.dtype == dtype
        assert received.numpy().tolist() == ones


def splits_that_change(steps):
    """The same op of one function, with other splits in every step."""
    kr.init()
    rank, size = kr.rank(), kr.size()

    @tf.function
    def exchange(tensor, splits):
        return kr.alltoall(tensor, splits, name="changing")

    for step in range(steps):
        # Every third step is as the one before, out of the cache.
        rng = np.random.default_rng(step - (step % 3 == 2))
        splits = rng.integers(0, 4, [size, size])
        arrays = [
            np.arange(row.sum()) + 100 * source
            for source, row in enumerate(splits)
        ]
        received, counts = exchange(
            tf.constant(arrays[rank]), tf.constant(splits[rank])
        )
        want, want_counts = model.alltoall(arrays, splits.tolist())[rank]
        np.testing.assert_array_equal(received, want)
        assert counts.numpy().tolist() == want_counts


def tensorflow_1():
    """A program without eager execution. Returns what it found."""
    tf.compat.v1.disable_eager_execution()
    kr.init()
    rank = kr.rank()
    variable = tf.compat.v1.get_variable("v", initializer=float(rank + 5))
    wide = tf.compat.v1.Variable(tf.constant(rank, tf.uint32))
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(kr.broadcast_global_variables(1))
        values = [value.item() for value in session.run([variable, wide])]
    share = kr.broadcast_object_fn(root_rank=1)
    shared = [share({"rank": rank, "turn": turn}) for turn in range(3)]
    return (
        values,
        shared,
        kr.broadcast_object(rank + 7),
        kr.allgather_object("x" * rank),
    )


def objects():
    """Eagerly, and while a function is traced."""
    kr.init()
    rank = kr.rank()
    share = kr.broadcast_object_fn(root_rank=1)
    assert [share([rank, turn]) for turn in range(3)] == [
        [1, turn] for turn in range(3)
    ]

    @tf.function
    def traced():
        assert kr.broadcast_object(rank + 1) == 1
        return tf.constant(1)

    traced()
    assert kr.allgather_object({"r": rank}) == [
        {"r": r} for r in range(kr.size())
    ]
    failure = _error_of(lambda: kr.broadcast_object_fn(kr.size()))
    assert failure[0] == "ValueError", failure
    try:
        kr.broadcast_global_variables(0)
    except RuntimeError as error:
        assert "broadcast_variables" in str(error)
    else:
        raise AssertionError("no error in eager execution")


def topology_of_a_later_job():
    """A graph that outlives its job finds out where the next one is."""
    kr.init()

    @tf.function
    def where():
        return kr.rank_op(), kr.size_op()

    first = [value.numpy() for value in where()]
    kr.shutdown()
    failure = _error_of(where)
    return first, failure


def several(calls):
    """Calls functions of this module by name: one start for many cases."""
    return [globals()[name](*args) for name, *args in calls]


def more_than_two_gib(elements):
    """An allreduce in place of more bytes than 31 bits can count."""
    kr.init()

    @tf.function(autograph=False)
    def step():
        tensor = tf.fill([elements], tf.cast(kr.rank() + 1, tf.uint8))
        total = kr.allreduce(tensor, kr.Sum, name="large")
        middle = elements // 2
        return (
            tf.concat([total[:8], total[middle : middle + 8], total[-8:]], 0),
            tf.reduce_min(total),
            tf.reduce_max(total),
        )

    sample, smallest, largest = step()
    assert smallest == largest == 3
    return sample.numpy().tolist()
