"""The sets of tensors that are measured: models' gradients among them."""

from __future__ import annotations

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """The 161 trainable tensors of ResNet-50 v1.5, 25,557,032 parameters.

    K. He et al., "Deep Residual Learning for Image Recognition", 2015, with
    the stride in the 3x3 convolution; convolutions have no bias.
    """
    shapes: list[Shape] = []

    def convolution(size: int, num_in: int, num_out: int) -> None:
        # Kernel, and the scale and offset of the batch normalization.
        shapes.extend([(size, size, num_in, num_out), (num_out,), (num_out,)])

    convolution(7, 3, 64)
    num_in = 64
    for width, num_blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(num_blocks):
            convolution(1, num_in, width)
            convolution(3, width, width)
            convolution(1, width, 4 * width)
            if block == 0:
                convolution(1, num_in, 4 * width)
            num_in = 4 * width
    return [*shapes, (2048, 1000), (1000,)]


def many_small() -> list[Shape]:
    """A thousand tensors of 1 KiB in float32."""
    return [(256,)] * 1000


def equal_parts(num_tensors: int, num_elements: int) -> list[Shape]:
    """So many elements in so many tensors, of at least one element each."""
    return [(max(1, num_elements // num_tensors),)] * num_tensors


# What a training step may reduce, by name.
STEPS = {"resnet50": resnet50, "many_small": many_small}
