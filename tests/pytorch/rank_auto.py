"""Programs of one process that `--auto` trains on ranks."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import torch

from tests.backends.auto_ranks import *  # noqa: F403
from tests.backends.auto_ranks import compiled, data, dense, refused, trained


def loader():
    """The order is drawn from PyTorch's own generator."""
    x, y = (torch.tensor(each) for each in data())
    dataset = torch.utils.data.TensorDataset(x, y)
    batches = torch.utils.data.DataLoader(dataset, 24, shuffle=True)
    return trained(compiled(dense()), batches, batch_size=None)


def own_optimizer():
    weight = torch.nn.Parameter(torch.ones(3))
    return refused(lambda: torch.optim.SGD([weight], 0.1))


def compiled_step():
    model = compiled(dense(), jit_compile=True)
    return refused(lambda: trained(model, *data()))
