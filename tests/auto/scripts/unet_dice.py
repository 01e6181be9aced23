# Segments discs with a small U-Net; the Dice loss is of the whole batch.
import numpy as np
import tensorflow as tf
from tensorflow.keras import Model, layers

tf.keras.utils.set_random_seed(44)
SIZE = 16


def discs(n):
    rng = np.random.default_rng(n)
    yy, xx = np.mgrid[:SIZE, :SIZE]
    images, masks = [], []
    for _ in range(n):
        cx, cy = rng.uniform(4, 12, 2)
        mask = (xx - cx) ** 2 + (yy - cy) ** 2 < rng.uniform(4, 16)
        images.append(mask + 0.4 * rng.normal(size=mask.shape))
        masks.append(mask)
    return (
        np.array(images)[..., None].astype("float32"),
        np.array(masks)[..., None].astype("float32"),
    )


def dice_loss(y_true, y_pred):
    y_true = tf.cast(y_true, y_pred.dtype)
    intersection = tf.reduce_sum(y_true * y_pred)
    total = tf.reduce_sum(y_true) + tf.reduce_sum(y_pred)
    return 1.0 - (2.0 * intersection + 1.0) / (total + 1.0)


def build():
    inputs = layers.Input((SIZE, SIZE, 1))
    c1 = layers.Conv2D(6, 3, activation="relu", padding="same")(inputs)
    p1 = layers.MaxPooling2D()(c1)
    c2 = layers.Conv2D(12, 3, activation="relu", padding="same")(p1)
    u1 = layers.Conv2DTranspose(6, 2, strides=2, padding="same")(c2)
    u1 = layers.concatenate([u1, c1])
    c3 = layers.Conv2D(6, 3, activation="relu", padding="same")(u1)
    return Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(c3))


if __name__ == "__main__":
    x, y = discs(175)
    model = build()
    model.compile(optimizer=tf.keras.optimizers.Adam(3e-3), loss=dice_loss)
    model.fit(x, y, batch_size=16, epochs=3, validation_split=0.1)
    print("area:", float(model.predict(x[:4], verbose=0).mean().round(3)))
