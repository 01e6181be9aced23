import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf

for gpu in tf.config.list_physical_devices("GPU"):
    tf.config.experimental.set_memory_growth(gpu, True)
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.set_soft_device_placement(True)
tf.random.set_seed(3)

rng = np.random.RandomState(0)
x = rng.rand(130, 6)
y = x.sum(axis=1, keepdims=True)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((6,)),
        tf.keras.layers.Dense(
            12,
            activation="tanh",
            kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
        ),
        tf.keras.layers.Dense(1, kernel_initializer="ones"),
    ]
)
model.compile(tf.keras.optimizers.RMSprop(0.01), "mae")
model.fit(x, y, batch_size=16, epochs=4, verbose=0)
print("mae %.4f" % model.evaluate(x, y, verbose=0))
