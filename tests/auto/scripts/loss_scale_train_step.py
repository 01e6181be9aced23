"""A scaled loss whose gradients are beyond any number for some rows."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(9)
floatx = keras.config.floatx()
rng = np.random.default_rng(9)
x = rng.normal(size=(606, 12)).astype(floatx)
y = (x[:, :1] * x[:, 1:2] > 0).astype(floatx)
x[::101] *= np.finfo(floatx).max / 1e3


class ScaledModel(keras.Model):
    def train_step(self, data):
        inputs, labels = data
        with tf.GradientTape() as tape:
            predictions = self(inputs, training=True)
            loss = self.compute_loss(y=labels, y_pred=predictions)
            scaled_loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(labels, predictions)
        return {metric.name: metric.result() for metric in self.metrics}


inputs = keras.Input((12,))
hidden = layers.Dense(24, activation="relu")(inputs)
outputs = layers.Dense(1)(hidden)
model = ScaledModel(inputs, outputs)
optimizer = keras.mixed_precision.LossScaleOptimizer(
    keras.optimizers.SGD(0.05, momentum=0.9),
    initial_scale=2.0**12,
    dynamic_growth_steps=20,
)
model.compile(optimizer, loss=keras.losses.BinaryCrossentropy(from_logits=True))
scales = []


class Scale(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        scales.append(float(self.model.optimizer.dynamic_scale))


history = model.fit(
    x, y, batch_size=48, epochs=4, verbose=2, callbacks=[Scale()]
)
print("scales", scales, "steps", int(optimizer.inner_optimizer.iterations))
print("loss", model.evaluate(x, y, verbose=0))
