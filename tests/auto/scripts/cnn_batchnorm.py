import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from tensorflow.keras import Input, Model
from tensorflow.keras.layers import (
    Activation,
    Add,
    BatchNormalization,
    Conv2D,
    Dense,
    GlobalAveragePooling2D,
)

tf.keras.utils.set_random_seed(5)


def res_block(x, filters):
    shortcut = x
    x = Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = BatchNormalization()(x)
    x = Activation("relu")(x)
    x = Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = BatchNormalization(momentum=0.9)(x)
    return Activation("relu")(Add()([shortcut, x]))


inp = Input((8, 8, 1))
h = Conv2D(8, 3, padding="same")(inp)
h = res_block(h, 8)
h = GlobalAveragePooling2D()(h)
out = Dense(10)(h)
model = Model(inp, out)

x, y = load_digits(return_X_y=True)
x = (x.reshape(-1, 8, 8, 1) / 16.0)[:701].astype(np.float32)
y = y[:701]
model.compile(
    tf.keras.optimizers.SGD(0.05, momentum=0.9),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["sparse_categorical_accuracy"],
)
model.fit(x, y, epochs=3, batch_size=50, validation_split=0.15)
print(model.predict(x[:3]).argmax(-1))
