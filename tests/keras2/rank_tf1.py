"""What ranks do in `test_tf1.py`. Each returns plain values."""

import copy
import os
import pickle
import signal

import numpy as np
import tensorflow as tf

import keras_ring as kr
from keras_ring.keras.agreement import looks
from keras_ring.keras.optimizer.mixin import distributed_settings
from tests.harness.set_known import set_known
from tests.keras2.counting import Counted

v1 = tf.compat.v1

UPDATES, BATCH_SIZE = 30, 16


class ScalingOptimizer(v1.train.GradientDescentOptimizer):
    """Divides gradients by what the largest of them is."""

    def compute_gradients(self, *args, **kwargs):
        pairs = super().compute_gradients(*args, **kwargs)
        largest = tf.reduce_max(
            [
                tf.reduce_max(tf.abs(gradient))
                for gradient, _ in pairs
                if isinstance(gradient, tf.Tensor)
            ]
        )
        return [
            (gradient / (largest + 1e-3), variable)
            if isinstance(gradient, tf.Tensor)
            else (gradient, variable)
            for gradient, variable in pairs
        ]


class ComputingOptimizer(v1.train.GradientDescentOptimizer):
    """Computes gradients without TensorFlow's method."""

    def compute_gradients(self, loss, *args, **kwargs):
        variables = v1.trainable_variables()
        gradients = tf.gradients(loss, variables)
        return list(zip(gradients, variables, strict=True))


OPTIMIZERS = {
    "GradientDescent": lambda: v1.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
    "Adam": lambda: v1.train.AdamOptimizer(0.01),
    "Adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "RMSProp": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.5),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.1),
    "Scaling": lambda: ScalingOptimizer(0.1),
    "Computing": lambda: ComputingOptimizer(0.1),
}
SETTINGS = {
    "plain": {},
    "predivide": {"gradient_predivide_factor": 4.0},
    "groups": {"groups": 2},
    "dense": {"sparse_as_dense": True},
    "passes": {
        "backward_passes_per_step": 3,
        "average_aggregated_gradients": True,
    },
}


def before_each_call():
    kr.init()


class Program:
    """A graph with a loss, and data."""

    def __init__(self, seed=1, sparse=True):
        v1.set_random_seed(seed)
        self.words = v1.placeholder(tf.int32, [None, 4])
        self.target = v1.placeholder(tf.float64, [None, 3])
        initial = np.random.default_rng(seed)

        def variable(name, *shape):
            return v1.get_variable(
                name,
                initializer=tf.constant(initial.normal(size=shape) / 3),
                use_resource=True,
            )

        if sparse:
            rows = tf.nn.embedding_lookup(variable("rows", 20, 5), self.words)
        else:
            rows = tf.one_hot(self.words % 5, 5, dtype=tf.float64)
        hidden = tf.tanh(
            tf.matmul(tf.reshape(rows, [-1, 20]), variable("one", 20, 6))
        )
        difference = tf.matmul(hidden, variable("two", 6, 3)) - self.target
        self.loss = tf.reduce_mean(tf.square(difference))
        self.step = v1.train.get_or_create_global_step()
        rng = np.random.default_rng(3)
        count = UPDATES * BATCH_SIZE
        self._words = rng.integers(0, 20, size=(count, 4))
        self._target = rng.normal(size=(count, 3))

    def batches(self, passes=1):
        """This rank's part of each batch.

        On one rank, a batch is that of all the passes.
        """
        size = BATCH_SIZE * (passes if kr.size() == 1 else 1)
        for start in range(0, len(self._words), size):
            part = slice(start + kr.rank(), start + size, kr.size())
            yield {
                self.words: self._words[part],
                self.target: self._target[part],
            }


def train(optimizer_name, settings_name="plain", clip=False):
    """Trains, and returns the weights and the global step."""
    settings = SETTINGS[settings_name]
    passes = settings.get("backward_passes_per_step", 1)
    with tf.Graph().as_default():
        # TensorFlow takes the norm of rows before it adds up those of one
        # index, which are others on one rank.
        program = Program(sparse=not clip)
        optimizer = OPTIMIZERS[optimizer_name]()
        if kr.size() > 1:
            optimizer = kr.DistributedOptimizer(optimizer, **settings)
        with Counted() as built:
            update = _update(optimizer, program, clip)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(v1.local_variables_initializer())
            session.run(kr.broadcast_global_variables(0))
            with Counted() as run:
                for batch in program.batches(passes):
                    session.run(update, batch)
            return {
                "weights": [
                    session.run(v).tolist() for v in v1.trainable_variables()
                ],
                "step": int(session.run(program.step)),
                "collectives": run.collectives,
                "gathers": built.gathers,
            }


def forgotten_broadcast():
    """Trains from initial values of each rank; returns what is said."""
    with tf.Graph().as_default():
        program = Program(seed=1 + kr.rank())
        optimizer = kr.DistributedOptimizer(OPTIMIZERS["Adam"]())
        update = _update(optimizer, program, False)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            try:
                session.run(update, next(iter(program.batches())))
            except tf.errors.OpError as error:
                return error.message
    return None


def changed_in_a_session(what, settings_name):
    """Rank 0 alone changes a variable; returns after which step it is told."""
    settings = SETTINGS[settings_name]
    # As often on a busy machine as on another one.
    set_known(looks, "_ALLOWANCE", 1e6)
    with tf.Graph().as_default():
        program = Program()
        optimizer = kr.DistributedOptimizer(OPTIMIZERS["Adam"](), **settings)
        update = _update(optimizer, program, False)
        (changed,) = (
            v for v in v1.global_variables() if v.name.startswith(f"{what}:")
        )
        assign = changed.assign(tf.ones_like(changed))
        batches = [*program.batches(), *program.batches()]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(v1.local_variables_initializer())
            session.run(kr.broadcast_global_variables(0))
            for batch in batches[:6]:
                session.run(update, batch)
            if kr.rank() == 0:
                session.run(assign)
            for made, batch in enumerate(batches[6:]):
                try:
                    session.run(update, batch)
                except tf.errors.OpError as error:
                    return made, error.message
    return None, None


def _update(optimizer, program, clip):
    if not clip:
        return optimizer.minimize(program.loss, program.step)
    pairs = optimizer.compute_gradients(program.loss)
    gradients, variables = zip(*pairs, strict=True)
    gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
    return optimizer.apply_gradients(
        zip(gradients, variables, strict=True), program.step
    )


def eagerly():
    """With a function for the loss, without a graph."""
    optimizer = kr.DistributedOptimizer(
        v1.train.MomentumOptimizer(0.5, 0.5),
        backward_passes_per_step=2,
        compression=kr.Compression.bf16,
    )
    variable = tf.Variable([0.0])
    values = []
    for _ in range(4):
        optimizer.minimize(lambda: variable * (1.0 + kr.rank()))
        values.append(float(variable[0]))
    return values


def own_gradients():
    """What did not come from `compute_gradients` is reduced all the same."""
    optimizer = kr.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), kr.Sum
    )
    shared, own = tf.Variable([0.0]), tf.Variable([0.0])
    optimizer.register_local_var(own)
    gradient = tf.constant([1.0 + kr.rank()])
    optimizer.apply_gradients([(gradient, shared), (gradient, own)])
    return float(shared[0]), float(own[0])


def arguments():
    """What each argument that is not in `SETTINGS` makes of 1 + rank."""

    def applied(gradient, local=False, **settings):
        optimizer = v1.train.GradientDescentOptimizer(1.0)
        optimizer = kr.DistributedOptimizer(optimizer, **settings)
        variable = tf.Variable([0.0])
        if local:
            optimizer.register_local_var(variable)
        for _ in range(settings.get("backward_passes_per_step", 1)):
            optimizer.apply_gradients([(tf.constant([gradient]), variable)])
        return -float(variable[0])

    mine = 1.0 + kr.rank()
    found = {
        op.name: applied(mine, op=op)
        for op in (kr.Average, kr.Sum, kr.Min, kr.Max, kr.Product)
    }
    # Which 16 bits round to 1.
    fine = 1.0 + 2.0**-12
    for name in ("none", "fp16", "bf16"):
        compression = getattr(kr.Compression, name)
        found[name] = applied(fine, compression=compression)
    for scaled in (True, False):
        found[f"local {scaled}"] = applied(
            2.0, local=True, scale_local_gradients=scaled
        )
    found["summed passes"] = applied(mine, backward_passes_per_step=2)
    sets = [kr.add_process_set([rank]) for rank in range(kr.size())]
    found["process_set"] = applied(mine, process_set=sets[kr.rank()])
    for each in sets:
        kr.remove_process_set(each)
    return found


def every_optimizer():
    """Each optimizer, and a plain one with the average."""
    others = ("Optimizer", "SyncReplicasOptimizer")
    extra = {
        "MomentumOptimizer": lambda: [0.9],
        "AdagradDAOptimizer": lambda: [tf.Variable(1, dtype=tf.int64)],
    }
    found = {}
    for name in dir(v1.train):
        if not name.endswith("Optimizer") or name in others:
            continue
        optimizer_class = getattr(v1.train, name)
        arguments = extra.get(name, list)
        plain, ours = (optimizer_class(0.1, *arguments()) for _ in range(2))
        kr.DistributedOptimizer(ours)
        variables = [tf.Variable([1.0, 2.0]) for _ in range(2)]
        for step in range(3):
            gradient = tf.constant([0.5, -0.25]) * (1.0 + step)
            with kr.allow_local_updates():
                plain.apply_gradients([(1.5 * gradient, variables[0])])
            mine = gradient * (1.0 + kr.rank())
            ours.apply_gradients([(mine, variables[1])])
        found[name] = [v.numpy().tolist() for v in variables]
    return found


def local_update():
    """An optimizer that does not reduce is refused."""
    with tf.Graph().as_default():
        program = Program()
        try:
            OPTIMIZERS["Adam"]().minimize(program.loss)
        except kr.errors.LocalUpdateError as error:
            return str(error)
    return ""


def copies():
    """A copy reduces as the original does."""
    found = []
    for copied in (copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))):
        optimizer = kr.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), kr.Sum
        )
        plain_class = v1.train.GradientDescentOptimizer
        duplicate = copied(optimizer)
        variable = tf.Variable([0.0])
        gradient = tf.constant([1.0 + kr.rank()])
        duplicate.apply_gradients([(gradient, variable)])
        found.append(
            duplicate is not optimizer
            and isinstance(duplicate, plain_class)
            and isinstance(optimizer, plain_class)
            and distributed_settings(duplicate)
            == distributed_settings(optimizer)
            and float(variable[0]) == -3.0
        )
    return found


class AtTheEnd(v1.train.SessionRunHook):
    """Keeps values as they are when a session ends."""

    def __init__(self, tensors):
        self._tensors = tensors
        self.values = None

    def end(self, session):
        self.values = session.run(self._tensors)


def monitored(directory, last_step, seed):
    """A `MonitoredTrainingSession`, from its checkpoint if there is one.

    Ranks begin with different weights, and only rank 0 reads and writes.
    """
    with tf.Graph().as_default():
        program = Program(seed=seed + kr.rank())
        optimizer = kr.DistributedOptimizer(OPTIMIZERS["Adam"]())
        update = optimizer.minimize(program.loss, program.step)
        weights = v1.trainable_variables()
        end = AtTheEnd(weights)
        hooks = [
            kr.BroadcastGlobalVariablesHook(0),
            v1.train.StopAtStepHook(last_step=last_step),
            end,
        ]
        batches = program.batches()
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=directory if kr.rank() == 0 else None,
            save_checkpoint_steps=5,
            save_summaries_steps=None,
            save_summaries_secs=None,
            hooks=hooks,
        ) as session:
            step, begun = session.run([program.step, weights], next(batches))
            while not session.should_stop():
                session.run(update, next(batches))
    return {
        "begin": int(step),
        "begun": [array.tolist() for array in begun],
        "end": [array.tolist() for array in end.values],
    }


def lost():
    """Rank 1 dies, and rank 0 does not make one session after the other."""
    kr.init()
    with tf.Graph().as_default():
        program = Program()
        optimizer = kr.DistributedOptimizer(OPTIMIZERS["Adam"]())
        update = optimizer.minimize(program.loss, program.step)
        with v1.train.MonitoredTrainingSession(
            hooks=[kr.BroadcastGlobalVariablesHook(0)]
        ) as session:
            for number, batch in enumerate(program.batches()):
                if number == 3 and kr.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                session.run(update, batch)


def model_fn(features, labels, mode):
    """Of an Estimator: a linear model."""
    weights = v1.get_variable(
        "weights",
        [4, 3],
        tf.float64,
        v1.random_normal_initializer(seed=1 + kr.rank()),
    )
    predicted = tf.matmul(features, weights)
    loss = tf.reduce_mean(tf.square(predicted - labels))
    if mode == tf.estimator.ModeKeys.EVAL:
        return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    if kr.size() > 1:
        optimizer = kr.DistributedOptimizer(optimizer)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optimizer.minimize(loss, v1.train.get_or_create_global_step()),
    )


def input_fn(shard=True):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(480, 4)), rng.normal(size=(480, 3))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).repeat(4)
    if not shard:
        return dataset.take(480).batch(48)
    return dataset.shard(kr.size(), kr.rank()).batch(BATCH_SIZE // kr.size())


def make_estimator(directory):
    return tf.estimator.Estimator(
        model_fn,
        model_dir=directory if kr.rank() == 0 else None,
        config=tf.estimator.RunConfig(
            tf_random_seed=1, save_checkpoints_steps=10, log_step_count_steps=50
        ),
    )


def estimator(directory):
    """`train` twice: the second goes on, on all ranks, where rank 0 is."""
    hook = kr.BroadcastGlobalVariablesHook(0)
    first = make_estimator(directory)
    first.train(input_fn, hooks=[hook], steps=20)
    before = first.get_variable_value("weights").tolist()
    second = make_estimator(directory)
    second.train(input_fn, hooks=[hook], steps=10)
    return {
        "before": before,
        "after": second.get_variable_value("weights").tolist(),
        "step": int(second.get_variable_value("global_step")),
    }


def train_and_evaluate(directory):
    trained = make_estimator(directory)
    metrics, _ = tf.estimator.train_and_evaluate(
        trained,
        tf.estimator.TrainSpec(
            input_fn,
            max_steps=30,
            hooks=[kr.BroadcastGlobalVariablesHook(0)],
        ),
        tf.estimator.EvalSpec(
            lambda: input_fn(shard=False),
            steps=None,
            start_delay_secs=0,
            throttle_secs=0,
        ),
    )
    return {
        "weights": trained.get_variable_value("weights").tolist(),
        "loss": float(metrics["loss"]),
        "step": int(metrics["global_step"]),
    }
