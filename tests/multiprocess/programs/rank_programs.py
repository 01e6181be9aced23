"""Runs random programs of collectives on one rank; see programs.py."""

import collections
import concurrent.futures
import random

import tensorflow as tf

import keras_ring as kr
from tests.multiprocess.collectives import collective_model as model


class Call:
    """One call of a program, as this rank makes it and as it must end.

    Args:
        description: From `random_programs`.
        process_set: Whose members make it, of whom this rank is one; ranks in
            the description are places in it.
        joined: Ranks that have joined. Not for what needs them.
    """

    def __init__(
        self, description, process_set=kr.global_process_set, joined=()
    ):
        self._call = description
        self._set = process_set
        self._joined = joined
        self.kind = description["kind"]
        self.grouped = self.kind.startswith("grouped_")
        self._rank, size = process_set.rank(), process_set.size()
        # By member, then by rank.
        self.arrays = [
            [
                model.values(
                    description["seed"] + position,
                    rank,
                    self._shape(position, rank, shape),
                    dtype,
                    description.get("op"),
                )
                for rank in range(size)
            ]
            for position, (dtype, shape) in enumerate(description["members"])
        ]
        self.own = [arrays[self._rank] for arrays in self.arrays]

    def _shape(self, position, rank, shape):
        if "rows" in self._call:
            return (self._call["rows"][position][rank], *shape)
        if "splits" in self._call:
            return (sum(self._call["splits"][rank]), *shape)
        return shape

    def make(self, tensors):
        """Calls the collective; returns a list of results."""
        call = self._call
        arguments = {"name": call["name"], "process_set": self._set}
        if "op" in call:
            arguments["op"] = kr.ReduceOp[call["op"]]
            arguments["prescale_factor"] = call["prescale"]
            arguments["postscale_factor"] = call["postscale"]
        if "root" in call:
            arguments["root_rank"] = self._set.ranks[call["root"]]
        if call.get("given"):
            arguments["splits"] = call["splits"][self._rank]
        function = getattr(kr, self.kind)
        results = function(
            list(tensors) if self.grouped else tensors[0], **arguments
        )
        is_list = self.grouped or call.get("given")
        return list(results) if is_list else [results]

    def check(self, results, exact, what):
        """Compares with what the whole group gives."""
        call = self._call
        rank, size = self._rank, self._set.size()
        if "splits" in call:
            received, counts = model.alltoall(self.arrays[0], call["splits"])[
                rank
            ]
            model.check(results[0], received, what)
            if call["given"]:
                assert results[1].tolist() == counts, what
            return
        for of_all, result in zip(self.arrays, results, strict=True):
            if "root" in call:
                model.check(result, of_all[call["root"]], what)
                continue
            arrays = [a for r, a in enumerate(of_all) if r not in self._joined]
            if call.get("op") == "Adasum":
                # The tree is one of all ranks.
                arrays = [
                    array * 0 if r in self._joined else array
                    for r, array in enumerate(of_all)
                ]
            if "op" in call:
                want = model.reduce(
                    arrays, call["op"], call["prescale"], call["postscale"]
                )
                if "reducescatter" in self.kind:
                    rows = model.scattered_rows(len(want.value), size)
                    assert result.shape[0] == rows[rank], what
                    want = model.Reduced(
                        model.rows_of(want.value, rank, size),
                        model.rows_of(want.tolerance, rank, size)
                        if want.tolerance.ndim
                        else want.tolerance,
                    )
                # The model's dot products are rounded otherwise.
                exactly = exact and call["op"] != "Adasum"
                model.check_reduced(result, want, exactly, what)
            else:
                model.check(result, model.np.concatenate(arrays), what)


def _eager(calls, order):
    # One after another, so in the same order on all ranks.
    return [_made_eagerly(call) for call in calls]


def _made_eagerly(call):
    results = call.make([tf.constant(array) for array in call.own])
    return [result.numpy() for result in results]


def _threads(calls, order):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        futures = {
            position: pool.submit(_made_eagerly, calls[position])
            for position in order
        }
        return [futures[position].result() for position in range(len(calls))]


def _function(calls, order):
    @tf.function(autograph=False)
    def step(*tensors):
        results = {}
        for position in order:
            results[position] = calls[position].make(tensors[position])
        return [results[position] for position in range(len(calls))]

    results = step(*([tf.constant(a) for a in call.own] for call in calls))
    return [[each.numpy() for each in result] for result in results]


def _graph(calls, order):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        feed = {}
        results = {}
        for position in order:
            tensors = []
            for array in calls[position].own:
                tensors.append(
                    tf.compat.v1.placeholder(
                        tf.as_dtype(array.dtype), array.shape
                    )
                )
                feed[tensors[-1]] = array
            results[position] = calls[position].make(tensors)
        fetches = [results[position] for position in range(len(calls))]
        return session.run(fetches, feed)


_MODES = {
    "eager": _eager,
    "threads": _threads,
    "function": _function,
    "graph": _graph,
}


def run(programs, ranks_of_sets, exact):
    """Runs and checks them all; returns how many calls of each kind.

    Args:
        programs: From `random_programs`.
        ranks_of_sets: Those of each process set; the first is the job.
        exact: By set, whether sums are made in the order of the ranks.
    """
    kr.init()
    sets = [kr.global_process_set] + [
        kr.add_process_set(ranks) for ranks in ranks_of_sets[1:]
    ]
    counts = collections.Counter()
    for number, program in enumerate(programs):
        joined = program["joined"]
        descriptions = [
            description
            for description in program["calls"]
            if sets[description["set"]].included()
        ]
        calls = [Call(each, sets[each["set"]], joined) for each in descriptions]
        order = list(range(len(calls)))
        random.Random(program["order_seed"] + kr.rank()).shuffle(order)
        results = None
        if calls and kr.rank() not in joined:
            results = _MODES[program["mode"]](calls, order)
        if joined:
            last = kr.join()
            assert last not in joined or not calls
            counts["joined"] += 1
        counts[program["mode"]] += len(calls)
        counts.update(call.kind for call in calls)
        counts.update(f"set {each['set']}" for each in descriptions)
        if results is None:
            continue
        for call, description, result in zip(
            calls, descriptions, results, strict=True
        ):
            call.check(
                result,
                exact[description["set"]],
                (number, program["mode"], description),
            )
    return dict(counts)
