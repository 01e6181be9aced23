"""In which order a compiled function starts and waits; traced, not run."""

import random

import pytest
import tensorflow as tf

import keras_ring as kr
from keras_ring.tensorflow import libraries

pytestmark = pytest.mark.skipif(
    not libraries.xla_built(), reason="not built for this TensorFlow"
)
SEEDS = range(40)


START, WAIT = "KerasRingXlaStart", "KerasRingXlaDone"


def traced(function, *arguments):
    """Returns a compiled function's graph, by the names of its ops.

    That is: their types, what each takes data from, and all that comes before
    it. Fails if something comes before itself.
    """
    step = tf.function(function, jit_compile=True, autograph=False)
    operations = step.get_concrete_function(*arguments).graph.get_operations()
    types = {op.name: op.type for op in operations}
    data = {op.name: {t.op.name for t in op.inputs} for op in operations}
    before = {
        op.name: data[op.name] | {c.name for c in op.control_inputs}
        for op in operations
    }
    ancestors = {}

    def visit(name, path):
        assert name not in path, f"a cycle at {name}"
        if name not in ancestors:
            ancestors[name] = set(before[name]).union(
                *(visit(source, path | {name}) for source in before[name])
            )
        return ancestors[name]

    for name in before:
        visit(name, frozenset())
    return types, data, ancestors


def levels_of(types, data):
    """Returns how many waits, one after the other, each op needs."""
    levels = {}

    def level(name):
        if name not in levels:
            levels[name] = max(
                (level(s) + (types[s] == WAIT) for s in data[name]), default=0
            )
        return levels[name]

    return {name: level(name) for name in types}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_start_a_level_before_they_wait_at_it(seed):
    choose = random.Random(seed)

    def program(x):
        tensors = [x]
        for i in range(30):
            inputs = choose.sample(tensors, min(len(tensors), 2))
            tensor = tf.add_n(inputs) * 2.0
            if choose.random() < 0.4:
                tensor = kr.allreduce(tensor, name=f"r{i}")
            elif choose.random() < 0.2:
                more = [tensor, *choose.sample(tensors, 1)]
                (tensor, _) = kr.grouped_allreduce(more, name=f"g{i}")
            tensors.append(tensor)
        return tensors

    types, data, ancestors = traced(program, tf.ones([3]))
    levels = levels_of(types, data)
    for start in (name for name in types if types[name] == START):
        for wait in (name for name in types if types[name] == WAIT):
            if levels[start] <= levels[wait]:
                assert start in ancestors[wait]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_with_variables_have_no_cycle(seed):
    choose = random.Random(seed)
    variables = [tf.Variable(tf.ones([3])) for _ in range(3)]

    def program(x):
        tensors = [x]
        for i in range(40):
            variable = choose.choice(variables)
            tensor = choose.choice(tensors)
            kind = choose.randrange(5)
            if kind == 0:
                variable.assign_add(tensor)
            elif kind == 1:
                tensors.append(variable + 1.0)
            elif kind == 2:
                tf.print(tensor)
            else:
                tensors.append(kr.allreduce(tensor * 2.0, name=f"r{i}"))
        return tensors

    traced(program, tf.ones([3]))


def test_gradients_of_a_step_share_one_wait(monkeypatch):
    from keras_ring.core import topology

    monkeypatch.setattr(topology, "is_initialized", lambda: True)
    monkeypatch.setattr(topology, "size", lambda: 2)
    monkeypatch.setattr(topology, "local_size", lambda: 1)
    monkeypatch.setattr(topology, "rank", lambda: 0)
    variables = [tf.Variable(tf.ones([3]), name=f"v{i}") for i in range(5)]

    def step(x):
        with kr.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(x * tf.add_n([v**2 for v in variables]))
        return tape.gradient(loss, variables)

    # There is no other rank with which initial values could be compared.
    with kr.allow_local_updates():
        types, _, _ = traced(step, tf.ones([3]))
    kinds = list(types.values())
    assert kinds.count(START) == 5
    assert kinds.count(WAIT) == 1


@pytest.mark.parametrize("jit_compile", [None, False])
def test_other_functions_have_the_ops_that_they_had(jit_compile):
    step = tf.function(
        lambda x: kr.allreduce(x, name="x"), jit_compile=jit_compile
    )
    graph = step.get_concrete_function(tf.ones([3])).graph
    types = {op.type for op in graph.get_operations()}
    assert "KerasRingAllreduce" in types
    assert not any(t.startswith("KerasRingXla") for t in types)
