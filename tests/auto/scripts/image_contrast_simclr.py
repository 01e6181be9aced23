"""Contrastive pretraining in which samples of a batch are each other's rest."""

import keras
import tensorflow as tf
from keras import layers, ops
from sklearn.datasets import load_digits

keras.utils.set_random_seed(81)
temperature = 0.2


class ContrastiveModel(keras.Model):
    def __init__(self, encoder, head):
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.tracker = keras.metrics.Mean(name="c_loss")

    @property
    def metrics(self):
        return [self.tracker]

    def contrastive_loss(self, projections_1, projections_2):
        projections_1 = ops.normalize(projections_1, axis=1)
        projections_2 = ops.normalize(projections_2, axis=1)
        similarities = (
            ops.matmul(projections_1, ops.transpose(projections_2))
            / temperature
        )
        batch_size = ops.shape(projections_1)[0]
        labels = ops.arange(batch_size)
        one = keras.losses.sparse_categorical_crossentropy(
            labels, similarities, from_logits=True
        )
        two = keras.losses.sparse_categorical_crossentropy(
            labels, ops.transpose(similarities), from_logits=True
        )
        return ops.mean(one + two) / 2

    def train_step(self, data):
        left = ops.reshape(data[:, :, :6], (-1, 48))
        right = ops.reshape(data[:, :, 2:], (-1, 48))
        with tf.GradientTape() as tape:
            loss = self.contrastive_loss(
                self.head(self.encoder(left, training=True)),
                self.head(self.encoder(right, training=True)),
            )
        weights = self.encoder.trainable_weights + self.head.trainable_weights
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights)
        )
        self.tracker.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


digits = load_digits()
images = digits.images[:1000] / 16.0
encoder = keras.Sequential([keras.Input((48,)), layers.Dense(24, "relu")])
head = keras.Sequential([keras.Input((24,)), layers.Dense(8)])
model = ContrastiveModel(encoder, head)
model.compile(optimizer=keras.optimizers.Adam(0.003))
model.fit(images, epochs=3, batch_size=64)

probe = keras.Sequential([encoder, layers.Dense(10)])
encoder.trainable = False
probe.compile(
    optimizer="adam",
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
left = images[:, :, :6].reshape(-1, 48)
probe.fit(left, digits.target[:1000], epochs=2, batch_size=64, verbose=2)
