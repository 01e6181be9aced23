import keras
import numpy as np
import tensorflow as tf

rng = np.random.RandomState(0)
x = rng.rand(130, 6).astype("float32")
y = x.sum(1, keepdims=True)
ds = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=2).batch(16)
m = keras.Sequential(
    [
        keras.layers.Input((6,)),
        keras.layers.Dense(
            8, kernel_initializer=keras.initializers.GlorotUniform(seed=1)
        ),
        keras.layers.Dense(1, kernel_initializer="ones"),
    ]
)
m.compile(keras.optimizers.SGD(0.05), "mse")
h = m.fit(ds, epochs=2, verbose=0)
print(
    "W %.6f" % float(sum(abs(w).sum() for w in m.get_weights())),
    ["%.6f" % v for v in h.history["loss"]],
)
