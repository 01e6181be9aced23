"""What single ranks do in test_process_sets.py."""

import concurrent.futures
import os
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

import keras_ring as kr
from tests.harness import notify


def _error(function):
    try:
        function()
    except (tf.errors.OpError, ValueError, TypeError) as error:
        text = getattr(error, "message", None) or str(error)
        return type(error).__name__, text.split("}} ")[-1].split(" [Op:")[0]
    return None


def changes():
    """Adds and removes; returns numbers and errors, alike on all ranks."""
    kr.init()
    rank = kr.rank()
    found = {}
    given = kr.ProcessSet([2, 0])
    assert (given.process_set_id, given.ranks) == (None, [0, 2])
    assert given.size() == 2
    assert given.included() == (rank != 1)
    found["not added"] = _error(lambda: kr.allreduce(1.0, process_set=given))
    assert kr.add_process_set(given) is given
    other = kr.add_process_set(range(1, 3))
    found["numbers"] = given.process_set_id, other.process_set_id
    if given.included():
        assert given.rank() == given.ranks.index(rank)
    else:
        kind, text = _error(given.rank)
        assert kind == "ValueError"
        assert "Rank 1 is not a member of the process set [0, 2]" in text
    assert kr.global_process_set.process_set_id == 0
    assert kr.global_process_set.ranks == [0, 1, 2]
    assert kr.global_process_set.rank() == rank
    assert kr.size_op(process_set=given).numpy() == 2  # on all ranks
    included = kr.process_set_included_op(given.process_set_id).numpy()
    assert included == (rank != 1)
    found["again"] = _error(lambda: kr.add_process_set([2, 0]))
    found["all"] = _error(lambda: kr.add_process_set([2, 1, 0]))
    found["beyond"] = _error(lambda: kr.add_process_set([0, 3]))
    found["twice"] = _error(lambda: kr.add_process_set([1, 1]))
    found["none"] = _error(lambda: kr.add_process_set([]))
    found["different"] = _error(
        lambda: kr.add_process_set([0, 1] if rank == 1 else [0])
    )
    found["add and remove"] = _error(
        lambda: (
            kr.remove_process_set(other)
            if rank == 0
            else kr.add_process_set([0])
        )
    )
    found["the job"] = _error(
        lambda: kr.remove_process_set(kr.global_process_set)
    )
    found["unknown"] = _error(
        lambda: kr.remove_process_set(kr.ProcessSet([0, 1]))
    )

    @tf.function
    def traced():
        return kr.allreduce(1.0, kr.Sum, name="traced", process_set=given)

    traced.get_concrete_function()
    if given.included():
        assert traced().numpy() == 2
    kr.remove_process_set(given)
    assert given.process_set_id is None
    kind, text = _error(traced)
    assert kind == "FailedPreconditionError", (kind, text)
    assert "'traced': process set 1 has been removed" in text
    found["removed"] = _error(lambda: kr.barrier(process_set=given))
    found["removed again"] = _error(lambda: kr.remove_process_set(given))
    found["no such id"] = _error(lambda: kr.process_set_included_op(99))
    kr.add_process_set(given)
    found["number after"] = given.process_set_id
    # Pickles are found again by their ranks.
    assert pickle.loads(pickle.dumps(given)) is given
    loaded = pickle.loads(pickle.dumps(kr.ProcessSet([1])))
    assert loaded.ranks == [1] and loaded.process_set_id is None
    copy = pickle.loads(pickle.dumps(kr.global_process_set))
    assert copy is kr.global_process_set
    assert kr.allreduce(1.0, kr.Sum, name="after").numpy() == 3
    kr.shutdown()
    assert given.process_set_id is None and other.process_set_id is None
    return found


def static_sets():
    """Sets from the beginning, in job after job."""
    sets = [kr.ProcessSet([1, 0]), kr.ProcessSet([2])]
    totals = []
    for first in (1, 3):
        kr.init(process_sets=sets)
        numbers = [each.process_set_id for each in sets]
        assert numbers == [first, first + 1]
        # As a library may do, too.
        kr.init()
        kr.init(process_sets=[[1, 0], [2]])
        again = _error(lambda: kr.init(process_sets=[[2], [0, 2]]))
        mine = sets[0] if sets[0].included() else sets[1]
        totals.append(
            kr.allreduce(kr.rank() + 1, kr.Sum, process_set=mine).numpy().item()
        )
        kr.shutdown()
    # What is wrong with them is wrong on all ranks, and leaves nothing behind.
    error = _error(lambda: kr.init(process_sets=[[0, 1], [1, 0]]))
    assert not kr.is_initialized()
    kr.init("dynamic")
    assert kr.allreduce(1.0, kr.Sum).numpy() == 3
    return totals, error, again


def several_at_once():
    """Returns an error, and what sets that were added in one call sum."""
    kr.init()
    error = _error(lambda: kr.add_process_sets([[0, 1], [0, 3]]))
    given = kr.ProcessSet([2])
    sets = kr.add_process_sets([[1, 0], given, range(1, 3)])
    assert sets[1] is given
    assert [each.process_set_id for each in sets] == [1, 2, 3]
    assert kr.add_process_sets([]) == []
    totals = [
        kr.allreduce(1.0, kr.Sum, process_set=each).numpy().item()
        if each.included()
        else None
        for each in sets
    ]
    return error, totals


def traced_in_an_earlier_job():
    """Calls functions in a second job that were traced in the first."""
    kr.init()
    first = kr.add_process_set([0, 1])
    in_set = tf.function(
        lambda: kr.allreduce(kr.rank() + 1.0, kr.Sum, process_set=first)
    )
    in_set.get_concrete_function()  # also where it must not be called
    in_job = tf.function(lambda: kr.allreduce(1.0, kr.Sum, name="in job"))
    results = []
    if first.included():
        results.append(in_set().numpy().item())
    results.append(in_job().numpy().item())
    kr.shutdown()
    kr.init()
    second = kr.add_process_set([0, 2])
    error = _error(in_set)
    if second.included():
        total = kr.allreduce(kr.rank() + 1.0, kr.Sum, process_set=second)
        results.append(total.numpy().item())
    results.append(in_job().numpy().item())
    return results, error


def too_many_ranks():
    """Sets that this job cannot have, of more text than ranks exchange."""
    wrong = _error(lambda: kr.init(process_sets=[range(20000)]))
    count = 30000 if os.environ["KERAS_RING_RANK"] == "1" else 20000
    try:
        kr.init(process_sets=[range(count)])
    except kr.errors.StartError as error:
        return wrong, str(error)
    return wrong, None


def different_static_sets():
    kr.init(
        process_sets=[[0, 1]] if os.environ["KERAS_RING_RANK"] == "2" else []
    )


def errors_name_ranks_of_the_job():
    """Mismatches in a set, and calls of a rank that is no member."""
    kr.init(process_sets=[[1, 2]])
    members = _added(1)
    rank = kr.rank()
    found = {}

    def call(name, function):
        found[name] = _error(function)

    one = tf.ones([2])
    if rank == 0:
        calls = {
            "allreduce": lambda **a: kr.allreduce(one, **a),
            "grouped_allreduce": lambda **a: kr.grouped_allreduce([one], **a),
            "allgather": lambda **a: kr.allgather(one, **a),
            "broadcast": lambda **a: kr.broadcast(one, 1, **a),
            "alltoall": lambda **a: kr.alltoall(one, **a),
            "reducescatter": lambda **a: kr.reducescatter(one, **a),
            "barrier": lambda **a: kr.barrier(**a),
        }
        for name, function in calls.items():
            call(name, lambda f=function: f(name="x", process_set=members))
        call("rank_op", lambda: kr.rank_op(process_set=members))
        compiled = tf.function(
            lambda: kr.reducescatter(one, name="x", process_set=members),
            jit_compile=True,
        )
        call("compiled", compiled)
        optimizer = kr.DistributedOptimizer(_sgd(), process_set=members)
        variable = tf.Variable([1.0])
        # Not called by name: it trains by itself.
        optimizer.apply([tf.ones([1])], [variable])
        assert variable.numpy().tolist() == [0.5]
        with tf.GradientTape() as tape:
            loss = 3.0 * variable
        tape = kr.DistributedGradientTape(tape, process_set=members)
        gradient = tape.gradient(loss, variable)
        _sgd().apply([gradient], [variable])
        assert variable.numpy().tolist() == [-1.0]
    else:
        odd = rank == 2
        call(
            "dtype",
            lambda: kr.allreduce(
                tf.ones([2], tf.int32 if odd else tf.float32),
                name="m1",
                process_set=members,
            ),
        )
        call(
            "root",
            lambda: kr.broadcast(one, 0, name="m2", process_set=members),
        )
        call(
            "splits",
            lambda: kr.alltoall(
                one,
                [3, -1] if odd else [1, 1],
                name="m3",
                process_set=members,
            ),
        )
        call("object root", lambda: kr.broadcast_object(1, 0, None, members))
        assert kr.broadcast(rank, 2, process_set=members).numpy() == 2
    kr.barrier()
    return found


def _sgd():
    import keras

    return keras.optimizers.SGD(0.5)


def independence(path):
    """Rank 2 comes late to one set; rank 0 goes on in another meanwhile."""
    kr.init(process_sets=[[0, 2], [0, 1]])
    held, free = _added(1), _added(2)
    rank = kr.rank()
    flag = Path(path)
    if rank == 2:
        while not flag.exists():
            time.sleep(0.01)
        return kr.allreduce(1.0, kr.Sum, name="x", process_set=held).numpy()
    if rank == 1:
        return [_sum_in(free) for _ in range(100)][-1]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(
            lambda: kr.allreduce(
                1.0, kr.Sum, name="x", process_set=held
            ).numpy()
        )
        sums = [_sum_in(free) for _ in range(100)]
        assert not late.done()
        flag.write_text("go")
        assert late.result() == 2.0
    return sums[-1]


def _sum_in(process_set):
    total = kr.allreduce(1.0, kr.Sum, name="x", process_set=process_set)
    return total.numpy()


def _added(number):
    from keras_ring.core import process_sets

    return process_sets.by_id(number)


def _resources():
    status = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text().splitlines()
    )
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "rss_kib": int(status["VmRSS"].split()[0]),
    }


def again_and_again(times):
    """Adds, uses and removes; returns the resources before and after."""
    kr.init()
    rank = kr.rank()

    def turn():
        sets = [kr.add_process_set([0, 1]), kr.add_process_set([1, 2])]
        for each in sets:
            if each.included():
                kr.allreduce(
                    tf.ones([100_000]), name="x", process_set=each
                ).numpy()
        for each in sets:
            kr.remove_process_set(each)
        # TensorFlow keeps a kernel for whatever an op was ever called with,
        # and these have a process set that is not used again.
        context.context().clear_kernel_cache()

    for _ in range(10):
        turn()
    kr.barrier()
    before = _resources()
    for _ in range(times):
        turn()
    kr.barrier()
    return rank, before, _resources()


def memory_of_sets(count):
    """Resident MiB that so many sets of all but one rank or two take.

    Returns:
        Before, with idle sets, and after each has reduced 16 MiB.
    """
    kr.init()
    size = kr.size()
    tensor = tf.ones([4 << 20])
    kr.allreduce(tensor, name="x")
    before = _resources()
    subsets = [
        [rank for rank in range(size) if number >> rank & 1]
        for number in range(1, 1 << size)
    ]
    subsets = [each for each in subsets if 1 < len(each) < size][:count]
    sets = [kr.add_process_set(each) for each in subsets]
    idle = _resources()
    for each in sets:
        if each.included():
            for _ in range(3):
                kr.allreduce(tensor, name="x", process_set=each)
    used = _resources()
    kr.barrier()
    return len(sets), before, idle, used


def threads_have_names():
    kr.init(process_sets=[[0, 1]])
    names = sorted(
        Path(f"/proc/self/task/{task}/comm").read_text().strip()
        for task in os.listdir("/proc/self/task")
    )
    kr.barrier()
    return [name for name in names if name.startswith("kr-")]


def train_in_set_until_killed(where):
    """Ranks 1 and 2 reduce in a set; rank 0 waits, in a set or in the job."""
    kr.init(process_sets=[[1, 2], [0, 3]])
    if kr.rank() in (0, 3):
        notify("training")
        in_job = where == "job"
        kr.allreduce(
            1.0,
            name=f"never {kr.rank()}",
            process_set=kr.global_process_set if in_job else _added(2),
        )
    tensor = tf.ones([1000])
    for i in range(100_000_000):
        kr.allreduce(tensor, name="x", process_set=_added(1))
        if i == 5:
            notify("training")


def leave_while_others_go_on(path):
    """A rank that is done does not end the sets of the others."""
    kr.init(process_sets=[[0, 1]])
    if kr.rank() == 2:
        kr.shutdown()
        Path(path).write_text("left")
        return None
    while not Path(path).exists():
        time.sleep(0.01)
    kind, text = _error(lambda: kr.allreduce(1.0, name="job"))
    totals = [_sum_in(_added(1)) for _ in range(20)]
    error = _error(lambda: kr.add_process_set([1, 2]))
    return kind, text, totals[-1], error


def objects_and_variables():
    kr.init(process_sets=[[2, 1]])
    pair = _added(1)
    if not pair.included():
        kr.barrier()
        return None
    rank = kr.rank()
    shared = kr.broadcast_object({"rank": rank}, 2, process_set=pair)
    gathered = kr.allgather_object(f"rank {rank}", process_set=pair)
    share = kr.broadcast_object_fn(1, process_set=pair)
    variable = tf.Variable([float(rank)])
    kr.broadcast_variables([variable], 2, process_set=pair)
    in_place = tf.Variable([float(rank)])
    kr.broadcast_([in_place], 1, process_set=pair)
    differing = _error(
        lambda: kr.broadcast_variables(
            [tf.Variable(tf.ones([rank]))], 1, process_set=pair
        )
    )
    kr.barrier()
    return (
        shared,
        gathered,
        share(rank),
        variable.numpy().item(),
        in_place.numpy().item(),
        differing,
    )


def training():
    """Each of two sets trains a model of its own. Returns the weights."""
    import keras

    # Before init, as plain values.
    sets = [kr.ProcessSet([0, 2]), kr.ProcessSet([1, 3]), kr.ProcessSet([3])]
    kr.init(process_sets=sets)
    mine = sets[kr.rank() % 2]
    keras.utils.set_random_seed(kr.rank())
    model = keras.Sequential(
        [
            keras.layers.Dense(4, name=f"dense_of_{kr.rank() % 2}"),
            kr.SyncBatchNormalization(process_set=mine),
            keras.layers.Dense(1),
        ]
    )
    optimizer = kr.DistributedOptimizer(
        keras.optimizers.SGD(0.05), process_set=mine
    )
    model.compile(
        optimizer, loss="mse", metrics=["mae"], jit_compile=kr.rank() % 2 == 1
    )
    warmup = kr.callbacks.LearningRateWarmupCallback(
        0.05, warmup_epochs=2, process_set=mine
    )
    assert warmup.multiplier(0.0) == 0.5
    rng = np.random.default_rng(kr.rank())
    steps = 3 + 2 * (kr.rank() % 2)  # the sets do not keep step
    x = rng.normal(size=(8 * steps, 3)).astype("f4")
    history = model.fit(
        x,
        x.sum(1, keepdims=True),
        batch_size=8,
        epochs=2,
        verbose=0,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(
                mine.ranks[0], process_set=mine
            ),
            kr.callbacks.MetricAverageCallback(process_set=mine),
            kr.callbacks.ConsistencyCheck(every=2, process_set=mine),
            warmup,
        ],
    )
    weights = [weight.tolist() for weight in model.get_weights()]
    # A tape, on the set and on a set of one.
    variable = tf.Variable(tf.ones([2]))
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(variable * float(kr.rank()))
    gradient = kr.DistributedGradientTape(tape, process_set=mine).gradient(
        loss, variable
    )
    if kr.rank() == 3:
        alone = kr.DistributedGradientTape(tape, process_set=sets[2])
        assert alone.gradient(loss, variable).numpy().tolist() == [3.0, 3.0]
        local = kr.DistributedOptimizer(_sgd(), process_set=sets[2])
        local.apply([tf.ones([2])], [variable])
        assert variable.numpy().tolist() == [0.5, 0.5]
    table = tf.Variable(tf.zeros([4, 1]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [kr.rank(), 0]))
    sparse = kr.DistributedGradientTape(tape, kr.Sum, process_set=mine)
    sparse = tf.convert_to_tensor(sparse.gradient(loss, table))
    config = model.layers[1].get_config()
    again = kr.SyncBatchNormalization.from_config(config)
    assert again.process_set is mine
    assert config["process_set"] == mine.ranks
    kr.barrier()
    return (
        weights,
        history.history["mae"],
        gradient.numpy().tolist(),
        sparse.numpy().flatten().tolist(),
    )


def many_threads(turns):
    """Every rank uses all of its sets at once, from a thread each."""
    subsets = [[0, 1], [1, 2], [2, 0], [0, 1, 2]]
    kr.init(process_sets=subsets[:3])
    sets = [_added(number) for number in (1, 2, 3)] + [kr.global_process_set]
    failures = []

    def use(process_set, number):
        rng = np.random.default_rng(number)  # the same on its members
        for turn in range(turns):
            count = int(rng.integers(1, 200_000 if turn % 10 == 0 else 50))
            total = kr.allreduce(
                tf.fill([count], float(kr.rank() + number)),
                kr.Sum,
                name="x",
                process_set=process_set,
            ).numpy()
            want = sum(rank + number for rank in process_set.ranks)
            if not (total == want).all():
                failures.append((number, turn))

    threads = [
        threading.Thread(target=use, args=(each, number))
        for number, each in enumerate(sets)
        if each.included()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
