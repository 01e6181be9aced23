"""What is trained: much compute for its gradients, and little."""

import keras
import numpy as np

_CLASSES = 10


def residual(width):
    """A residual convolutional net for images of 64x64.

    Args:
        width: Channels of its first blocks; a full one has 32.
    """
    layers = keras.layers
    inputs = keras.Input((64, 64, 3))
    x = layers.Conv2D(width, 3, strides=2, padding="same")(inputs)
    for stage in range(4):
        for block in range(2):
            channels = width << stage
            strides = 2 if stage and not block else 1
            x = _residual_block(x, channels, strides)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(_CLASSES)(x))


def _residual_block(x, channels, strides):
    layers = keras.layers
    y = layers.Conv2D(
        channels, 3, strides=strides, padding="same", use_bias=False
    )(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.Conv2D(channels, 3, padding="same", use_bias=False)(y)
    y = layers.BatchNormalization()(y)
    if x.shape != y.shape:
        x = layers.Conv2D(channels, 1, strides=strides, use_bias=False)(x)
    return layers.ReLU()(layers.Add()([x, y]))


def dense(width):
    """A dense net, each of whose weights is used once per image.

    Args:
        width: Units of its four hidden layers; a full one has 2048.
    """
    layers = keras.layers
    hidden = [layers.Dense(width, activation="relu") for _ in range(4)]
    return keras.Sequential(
        [keras.Input((1024,)), *hidden, layers.Dense(_CLASSES)]
    )


# Name -> how it is made.
MODELS = {"residual": residual, "dense": dense}


def batch_for(model, num_images):
    """Returns one batch of images and labels."""
    random = np.random.default_rng(1)
    images = random.normal(size=(num_images, *model.input_shape[1:]))
    labels = random.integers(_CLASSES, size=num_images)
    return images.astype("float32"), labels.astype("int32")
