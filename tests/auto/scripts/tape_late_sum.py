"""A loop whose step counts what does not happen at first; a tiny last batch."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(5)
x = np.random.normal(size=(97, 6))
y = (x[:, :2] ** 2).sum(axis=1, keepdims=True)
y[60:] += 40
net = keras.Sequential(
    [keras.layers.Dense(8, "relu"), keras.layers.Dense(1)], name="net"
)
optimizer = keras.optimizers.RMSprop(0.02)
far = keras.metrics.Sum(name="far")
data = tf.data.Dataset.from_tensor_slices({"x": x, "y": y}).batch(32)


@tf.function(reduce_retracing=True)
def train(batch, scale):
    with tf.GradientTape() as tape:
        error = net(batch["x"], training=True) - batch["y"]
        loss = scale * tf.reduce_mean(tf.square(error))
    variables = net.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    outliers = tf.cast(tf.abs(error) > 30, error.dtype)
    far.update_state(outliers)
    if tf.reduce_max(tf.abs(error)) > 1000:
        tf.print("lost")
    return loss, tf.reduce_sum(outliers), None


for epoch in range(3):
    for batch in data:
        loss, outliers, nothing = train(batch, scale=0.5)
        assert nothing is None
        print(f"loss {loss:.6f}, {int(outliers)} far")
    print(f"epoch {epoch}: {int(far.result())} far so far")
net.save("net.keras")
print(net.predict(x[:3], verbose=0)[:, 0])
