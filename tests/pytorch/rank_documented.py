"""Runs examples of the documentation of PyTorch, in ranks."""

import contextlib
import os
import traceback
from pathlib import Path

# What examples leave to the reader.
PRELUDE = """
import torch
import keras_ring.torch as kr

torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Embedding(9, 4))
embedding = model[1]
model.embedding = embedding
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loss_function = torch.nn.functional.mse_loss
x, y = torch.ones(8, 4), torch.ones(8, 3)
batches_of_this_rank = [(x, y)]
tensor = statistics = table = order = x.clone()
rows = x[: kr.size()] if kr.is_initialized() else x
splits = [1] * len(rows)
predictions, labels, scores = x, y, x[:3]
loss, accuracy = torch.tensor(1.0), torch.tensor(0.5)
mean, variance = torch.zeros(3), torch.ones(3)
gradients = [x, x[:3]]
for p in model.parameters():
    p.grad = torch.ones_like(p)
parameters = list(model.named_parameters())
download, data = print, "data"
resnet = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2))
dataset, epochs, train_step = [(x[0], y[0])] * 100, 2, lambda x, y: None
batches, clip = [(x, y)] * 3, list


def compute():
    return None


def loss_of(batch):
    return loss_function(model[0](batch[0]), batch[1])
"""
# What some examples leave to the reader besides, or have to be told, by their
# names.
ALSO = {
    "torch.DistributedOptimizer": "model = model[0]",
    "torch.broadcast_optimizer_state": """
if kr.rank() == 0:
    torch.save(optimizer.state_dict(), "optimizer.pt")
""",
    "torch.join": """
model = model[0]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer = kr.DistributedOptimizer(optimizer)
batches_of_this_rank = [(x, y)] * (1 + kr.rank())
""",
    "torch.sparse_allreduce_async": """
embedding = torch.nn.Embedding(9, 4, sparse=True)
embedding(torch.tensor([1, 2])).sum().backward()
""",
}


def _run(name, code, directory):
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)
    import keras_ring.torch as kr

    with contextlib.ExitStack() as stack:
        names = {"__name__": "__main__"}
        stack.callback(kr.shutdown)
        kr.init()
        exec(compile(PRELUDE, "<prelude>", "exec"), names)
        exec(compile(ALSO.get(name, ""), f"<of {name}>", "exec"), names)
        exec(compile(code, f"<{name}>", "exec"), names)


def run(examples, directory):
    """Returns the tracebacks of the examples that fail, by their names."""
    failed = {}
    for name, code in examples:
        print(name, flush=True)
        try:
            place = f"{name.replace('/', '.')}.{os.getpid()}"
            _run(name, code, Path(directory) / place)
        except Exception:
            failed[name] = traceback.format_exc()
    return failed
