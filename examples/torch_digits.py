"""Trains a classifier of handwritten digits with PyTorch.

On two ranks:

    keras-ring run -np 2 -- python examples/torch_digits.py

In one process:

    python examples/torch_digits.py
"""

import hashlib
import time

import torch
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import keras_ring.torch as kr

FLAGS = flags.FLAGS

flags.DEFINE_integer("epochs", 20, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)
flags.DEFINE_float("learning_rate", 0.005, "Learning rate.")
flags.DEFINE_integer("seed", 1, "Seed of the split, the order and the weights.")


def make_model():
    """Returns a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def make_data(seed):
    """Returns the images and labels to train on, and those to test with."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    parts = train_test_split(
        images.reshape(-1, 1, 8, 8),
        torch.tensor(labels),
        test_size=0.2,
        random_state=seed,
    )
    x_train, x_test, y_train, y_test = parts
    return TensorDataset(x_train, y_train), TensorDataset(x_test, y_test)


def weights_checksum(model):
    """Returns a short SHA-256 of all weights: the same, or not the same."""
    checksum = hashlib.sha256()
    for value in model.state_dict().values():
        checksum.update(value.numpy().tobytes())
    return checksum.hexdigest()[:16]


def main(argv):
    """Trains, then tests on images that were not trained on."""
    del argv
    kr.init()
    torch.manual_seed(FLAGS.seed)
    train, test = make_data(FLAGS.seed)
    # Each rank trains on its part.
    sampler = DistributedSampler(
        train, num_replicas=kr.size(), rank=kr.rank(), seed=FLAGS.seed
    )
    loader = DataLoader(
        train, max(1, FLAGS.batch_size // kr.size()), sampler=sampler
    )

    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), FLAGS.learning_rate)
    optimizer = kr.DistributedOptimizer(optimizer, model.named_parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, FLAGS.epochs
    )

    began = time.perf_counter()
    for epoch in range(FLAGS.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        mean = kr.allreduce(total / len(loader), name="loss").item()
        if kr.rank() == 0:
            print(f"epoch {epoch + 1}: loss {mean:.4f}", flush=True)
    if kr.rank() == 0:
        steps = FLAGS.epochs * len(loader) / (time.perf_counter() - began)
        print(f"{steps:.0f} steps per second")

    # Every rank has the same weights, so each can test by itself.
    with torch.no_grad():
        x, y = test.tensors
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    print(
        f"rank {kr.rank()}: test accuracy {accuracy:.4f}, "
        f"weights sha256 {weights_checksum(model)}",
        flush=True,
    )


if __name__ == "__main__":
    app.run(main)
