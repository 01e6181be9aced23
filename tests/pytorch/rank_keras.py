"""What ranks do with models of Keras that compute with PyTorch."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch

import keras_ring as kr
from tests.backends import ranks
from tests.backends.ranks import (
    BATCH,
    COLUMNS,
    OPTIMIZERS,
    Exact,
    Squares,
    beside_one_process,
    data,
    imported,
    init,
    make,
    mistakes,
    own_parts,
    resumed,
    saved,
    scheduled,
    share,
    weighted,
)

torch.set_num_threads(1)

__all__ = [
    "OPTIMIZERS",
    "beside_one_process",
    "imported",
    "mistakes",
    "own_parts",
    "resumed",
    "saved",
    "scheduled",
    "weighted",
]


def ways_to_train():
    """Returns how far trainings are from those of one process."""
    return ranks.ways_to_train(_more)


def _more(compared, x, y, mine):
    size = kr.size()

    def loop(model, x, y, rows):
        weights = model.trainable_weights
        for at in range(0, len(x), rows):
            model.zero_grad()
            loss = Squares()(
                torch.tensor(y[at : at + rows]),
                model(torch.tensor(x[at : at + rows])),
            )
            loss.backward()
            with torch.no_grad():
                gradients = [weight.value.grad for weight in weights]
                model.optimizer.apply(gradients, weights)

    compared(
        "a loop",
        lambda model: loop(model, *mine, BATCH // size),
        lambda model: loop(model, x, y, BATCH),
    )

    def by_grad(model, x, y, rows):
        weights = model.trainable_weights
        for at in range(0, len(x), rows):
            loss = Squares()(
                torch.tensor(y[at : at + rows]),
                model(torch.tensor(x[at : at + rows])),
            )
            gradients = torch.autograd.grad(
                loss, [weight.value for weight in weights]
            )
            with torch.no_grad():
                model.optimizer.apply(gradients, weights)

    compared(
        "autograd.grad",
        lambda model: by_grad(model, *mine, BATCH // size),
        lambda model: by_grad(model, x, y, BATCH),
    )

    def loader(x, y, rows):
        return torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)),
            batch_size=rows,
        )

    def fit(model, data):
        model.fit(data, epochs=2, shuffle=False, verbose=0)

    compared(
        "DataLoader",
        lambda model: fit(model, loader(*mine, BATCH // size)),
        lambda model: fit(model, loader(x, y, BATCH)),
    )


class Sometimes(keras.Model):
    """A model one of whose layers only some ranks use in a step."""

    def __init__(self):
        super().__init__()
        self.always, self.seldom = Exact(2), Exact(2)

    def build(self, shape):
        self.always.build(shape)
        self.seldom.build(shape)

    def call(self, inputs):
        result = self.always(inputs)
        if not isinstance(inputs, torch.Tensor) or inputs[0, 0] > 0:
            result = result + self.seldom(inputs)
        return result


def unused():
    """A layer that one rank alone uses is trained by its share."""
    rank, _ = init()
    model = Sometimes()
    model.build((None, COLUMNS))
    model.compile(kr.DistributedOptimizer(keras.optimizers.SGD(0.1)), Squares())
    kr.broadcast_model(model)
    x, y = data(8)
    moved = []
    for user in (0, 1, None):
        # Of one rank, which is another in each step, and then of none.
        x[:, 0] = 1.0 if rank == user else -1.0
        before = model.get_weights()
        model.train_on_batch(x, y)
        after = model.get_weights()
        pairs = zip(before, after, strict=True)
        moved.append([bool((a != b).any()) for a, b in pairs])
    first = kr.broadcast_object(after, 0)
    same = all((a == b).all() for a, b in zip(first, after, strict=True))
    return same, moved


def refusals():
    """Returns what a program is told of what PyTorch cannot do."""
    init()
    try:
        kr.data.shard(files="*.tfrecord")
    except ImportError as error:
        return str(error)
    return ""


def looked_at():
    """Looks at gradients of one rank; returns whether ranks stay equal."""
    init()
    x, y = share(*data())
    model = make()
    model.compile(kr.DistributedOptimizer("sgd"), Squares())
    kr.broadcast_model(model)
    model.fit(x, y, batch_size=8, verbose=0)
    if kr.rank() == 0:
        # Nobody is waited for.
        with kr.allow_local_updates():
            Squares()(y, model(torch.tensor(x))).backward()
        model.zero_grad()
    model.fit(x, y, batch_size=8, verbose=0)
    by_rank = kr.allgather_object(model.get_weights())
    return all(
        (a == b).all()
        for weights in by_rank
        for a, b in zip(weights, by_rank[0], strict=True)
    )
