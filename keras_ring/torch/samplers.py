"""Divides the samples of a data set among the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import torch

from keras_ring.core import topology


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides a data set among ranks, and remembers how far an epoch has come.

    It is like `torch.utils.data.DistributedSampler`, with a state: a program
    that goes on from a checkpoint, on as many ranks or on others, continues
    with the samples that the epoch has left.

    Args:
        dataset: An object with a length, which does not change.
        shuffle: Boolean, whether the order is random. Defaults to `True`.
        seed: Integer, the same on all ranks. Defaults to `0`.

    Example:
    ```python
    sampler = kr.ElasticSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, 32, sampler=sampler)
    for epoch in range(epochs):
        for i, (x, y) in enumerate(loader):
            train_step(x, y)
            sampler.record_batch(i, batch_size=32)
        sampler.set_epoch(epoch + 1)
    ```
    """

    def __init__(
        self, dataset: Sized, shuffle: bool = True, seed: int = 0
    ) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch, of which no sample is processed yet.

        Args:
            epoch: Integer, which decides the order together with the seed.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Records that each rank has processed a batch.

        Args:
            batch_idx: Integer, the index of the batch. Unused.
            batch_size: Integer, the number of samples of this rank in it.
        """
        self.processed_num += batch_size * self.num_replicas

    def state_dict(self) -> dict[str, Any]:
        """Returns the epoch and the number of its samples processed so far."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` has returned."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides the samples that are left among the ranks there are now."""
        self.num_replicas = topology.size()
        self.rank = topology.rank()
        indices = np.arange(len(self.dataset))
        if self.shuffle:
            np.random.default_rng((self.seed, self.epoch)).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :].tolist()
        self.num_samples = math.ceil(
            len(self.remaining_indices) / self.num_replicas
        )
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        left = self.remaining_indices
        # All ranks get the same number; the first ones are used again.
        repeats = math.ceil(self.total_size / max(len(left), 1))
        padded = (left * repeats)[: self.total_size]
        return iter(padded[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
