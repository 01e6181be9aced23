"""Trains a ResNet-50 with PyTorch, and tells how many images a second.

On two ranks, with images that are made up:

    keras-ring run -np 2 -- python examples/torch_resnet.py --synthetic

With images of your own, in a file of `numpy.savez(path, x=images, y=labels)`,
where images are of shape `[n, height, width, 3]` and of 8 bits:

    keras-ring run -np 2 -- python examples/torch_resnet.py --images=data.npz
"""

import time

import numpy as np
import torch
from absl import app, flags
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import keras_ring.torch as kr

FLAGS = flags.FLAGS

flags.DEFINE_bool("synthetic", False, "Whether to train on made-up images.")
flags.DEFINE_string("images", None, "A file of images and labels.")
flags.DEFINE_integer("size", 224, "Height and width of made-up images.")
flags.DEFINE_integer("classes", 1000, "Number of classes.", lower_bound=2)
flags.DEFINE_list("blocks", "3,4,6,3", "Blocks of each stage; of ResNet-50.")
flags.DEFINE_integer("width", 64, "Channels of the first stage.")
flags.DEFINE_integer("batch_size", 32, "Images in a step of a rank.")
flags.DEFINE_integer("warmup", 2, "Steps before the clock starts.")
flags.DEFINE_integer("steps", 10, "Steps that are measured.", lower_bound=1)
flags.DEFINE_bool("bf16", False, "Whether gradients travel as bfloat16.")


class Bottleneck(nn.Module):
    """A block of three convolutions and a shortcut.

    Args:
        channels: Integer, the channels of the input.
        width: Integer, those of the inner convolution.
        stride: Integer, the stride of the inner convolution.
    """

    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False),
                nn.BatchNorm2d(out),
            )

    def forward(self, x):
        """Returns the output of the block."""
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def make_model(blocks, width, classes):
    """Returns a residual network (He et al., arXiv:1512.03385)."""
    layers = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(channels, width << stage, stride))
            channels = 4 * (width << stage)
    return nn.Sequential(
        *layers,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, classes),
    )


def make_data():
    """Returns images, as floats, and labels."""
    if FLAGS.synthetic:
        torch.manual_seed(2)
        count = FLAGS.batch_size * kr.size()
        size = FLAGS.size
        images = torch.randn(count, 3, size, size)
        return images, torch.randint(FLAGS.classes, (count,))
    with np.load(FLAGS.images) as file:
        images = torch.tensor(file["x"]).permute(0, 3, 1, 2) / 255.0
        return images, torch.tensor(file["y"]).long()


def batches_of(loader):
    """Yields batches without end, each epoch in another order."""
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main(_):
    """Trains for some steps, and prints how fast."""
    kr.init()
    torch.manual_seed(1)
    model = make_model(
        [int(each) for each in FLAGS.blocks], FLAGS.width, FLAGS.classes
    )
    optimizer = torch.optim.SGD(
        model.parameters(), 0.0125 * kr.size(), momentum=0.9
    )
    optimizer = kr.DistributedOptimizer(
        optimizer,
        model.named_parameters(),
        compression=kr.Compression.bf16 if FLAGS.bf16 else kr.Compression.none,
    )
    kr.broadcast_parameters(model.state_dict(), root_rank=0)
    kr.broadcast_optimizer_state(optimizer, root_rank=0)

    dataset = TensorDataset(*make_data())
    sampler = DistributedSampler(
        dataset, num_replicas=kr.size(), rank=kr.rank()
    )
    loader = DataLoader(
        dataset, FLAGS.batch_size, sampler=sampler, drop_last=True
    )
    if not len(loader):
        raise app.UsageError(
            f"{len(dataset)} images are too few for a batch of "
            f"{FLAGS.batch_size} on each of {kr.size()} ranks."
        )
    batches = batches_of(loader)

    def step():
        x, y = next(batches)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(FLAGS.warmup):
        step()
    kr.barrier()
    began = time.perf_counter()
    for _ in range(FLAGS.steps):
        loss = step()
    kr.barrier()
    seconds = time.perf_counter() - began
    if kr.rank() == 0:
        count = sum(each.numel() for each in model.parameters())
        rate = FLAGS.steps * FLAGS.batch_size / seconds
        print(
            f"{count / 1e6:.1f} million parameters, loss {loss:.3f}: "
            f"{rate:.2f} images/s on each of {kr.size()} ranks, "
            f"{rate * kr.size():.2f} together"
        )


@flags.multi_flags_validator(
    ["synthetic", "images"], message="Give --synthetic or --images."
)
def _one_of_both(given):
    return given["synthetic"] != bool(given["images"])


if __name__ == "__main__":
    app.run(main)
