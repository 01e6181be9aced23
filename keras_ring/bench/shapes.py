"""Sets of tensors to measure, among them the gradients of models."""

from __future__ import annotations

Shape = tuple[int, ...]


def resnet50() -> list[Shape]:
    """Returns the 161 trainable tensors of ResNet-50 v1.5.

    They have 25,557,032 parameters. K. He et al., "Deep Residual Learning for
    Image Recognition", 2015, with the stride in the 3x3 convolution;
    convolutions have no bias.
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
    """Returns a thousand tensors of 1 KiB in float32."""
    return [(256,)] * 1000


def vgg16() -> list[Shape]:
    """Returns the 32 tensors of VGG-16, three of which are large.

    They have 138,357,544 parameters. K. Simonyan and A. Zisserman, "Very Deep
    Convolutional Networks for Large-Scale Image Recognition", 2014,
    configuration D.
    """
    shapes: list[Shape] = []
    num_in = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            shapes += [(3, 3, num_in, width), (width,)]
            num_in = width
    for num_in, num_out in ((25088, 4096), (4096, 4096), (4096, 1000)):
        shapes += [(num_in, num_out), (num_out,)]
    return shapes


def bert_large() -> list[Shape]:
    """Returns the 391 tensors of BERT-large.

    They have 335,141,888 parameters. J. Devlin et al., "BERT: Pre-training of
    Deep Bidirectional Transformers for Language Understanding", 2018; without
    the heads of its tasks.
    """
    width, inner = 1024, 4096
    norm: list[Shape] = [(width,), (width,)]

    def dense(num_in: int, num_out: int) -> list[Shape]:
        return [(num_in, num_out), (num_out,)]

    shapes = [(30522, width), (512, width), (2, width), *norm]
    for _ in range(24):
        # Query, key, value and output; then the two dense layers.
        for _ in range(4):
            shapes += dense(width, width)
        shapes += [*norm, *dense(width, inner), *dense(inner, width), *norm]
    return [*shapes, *dense(width, width)]


def mixed() -> list[Shape]:
    """Returns 3,000 tensors of 4 B to 256 KiB, equally many of each size.

    They are float32. Consecutive sizes differ, as in a model.
    """
    count, largest = 3000, 1 << 16
    # The step has no common divisor with the count, so it visits all of them.
    order = [i * 997 % count for i in range(count)]
    return [(round(largest ** (i / (count - 1))),) for i in order]


def equal_parts(num_tensors: int, num_elements: int) -> list[Shape]:
    """Returns tensors of equal sizes, of at least one element each."""
    return [(max(1, num_elements // num_tensors),)] * num_tensors


# Sets of tensors of training steps, by name.
STEPS = {
    "resnet50": resnet50,
    "many_small": many_small,
    "mixed": mixed,
    "vgg16": vgg16,
    "bert_large": bert_large,
}
