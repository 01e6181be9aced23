"""Siamese network with a triplet loss, as the example of keras.io."""

import keras
import numpy as np
import tensorflow as tf
from keras import Model, layers, metrics, ops, optimizers
from sklearn.datasets import load_digits

keras.utils.set_random_seed(12)
target_shape = (8, 8)
digits, labels = load_digits(return_X_y=True)
digits = (digits / 16.0).reshape(-1, *target_shape, 1)
floatx = keras.config.floatx()
rng = np.random.RandomState(seed=42)
anchors, positives = [], []
for label in range(10):
    rows = np.where(labels == label)[0][:40]
    anchors += list(rows[:20])
    positives += list(rows[20:])
anchor_images, positive_images = sorted(anchors), sorted(positives)
image_count = len(anchor_images)
negative_images = anchor_images + positive_images
rng.shuffle(negative_images)


def preprocess_triplets(anchor, positive, negative):
    return tuple(
        tf.cast(tf.gather(images, each), floatx)
        for each in (anchor, positive, negative)
    )


images = tf.constant(digits)
anchor_dataset = tf.data.Dataset.from_tensor_slices(anchor_images)
positive_dataset = tf.data.Dataset.from_tensor_slices(positive_images)
negative_dataset = tf.data.Dataset.from_tensor_slices(negative_images)
negative_dataset = negative_dataset.shuffle(buffer_size=4096, seed=3)
dataset = tf.data.Dataset.zip(
    (anchor_dataset, positive_dataset, negative_dataset)
)
dataset = dataset.shuffle(buffer_size=1024, seed=4)
dataset = dataset.map(preprocess_triplets)
train_dataset = dataset.take(round(image_count * 0.8))
val_dataset = dataset.skip(round(image_count * 0.8))
train_dataset = train_dataset.batch(32, drop_remainder=False).prefetch(8)
val_dataset = val_dataset.batch(32, drop_remainder=False).prefetch(8)

embedding = keras.Sequential(
    [
        layers.Input((*target_shape, 1)),
        layers.Conv2D(6, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.BatchNormalization(),
        layers.Dense(16),
    ],
    name="Embedding",
)


class DistanceLayer(layers.Layer):
    def call(self, anchor, positive, negative):
        ap_distance = ops.sum(tf.square(anchor - positive), -1)
        an_distance = ops.sum(tf.square(anchor - negative), -1)
        return (ap_distance, an_distance)


anchor_input = layers.Input(name="anchor", shape=(*target_shape, 1))
positive_input = layers.Input(name="positive", shape=(*target_shape, 1))
negative_input = layers.Input(name="negative", shape=(*target_shape, 1))
distances = DistanceLayer()(
    embedding(anchor_input),
    embedding(positive_input),
    embedding(negative_input),
)
siamese_network = Model(
    inputs=[anchor_input, positive_input, negative_input], outputs=distances
)


class SiameseModel(Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network = siamese_network
        self.margin = margin
        self.loss_tracker = metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._compute_loss(data)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(
            zip(gradients, self.siamese_network.trainable_weights)
        )
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        loss = self._compute_loss(data)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def _compute_loss(self, data):
        ap_distance, an_distance = self.siamese_network(data)
        loss = ap_distance - an_distance
        loss = ops.maximum(loss + self.margin, 0.0)
        return loss

    @property
    def metrics(self):
        return [self.loss_tracker]


siamese_model = SiameseModel(siamese_network)
siamese_model.compile(optimizer=optimizers.Adam(0.001))
siamese_model.fit(train_dataset, epochs=4, validation_data=val_dataset)
sample = next(iter(train_dataset))
anchor, positive, negative = (embedding(each) for each in sample)
cosine_similarity = metrics.CosineSimilarity()
positive_similarity = cosine_similarity(anchor, positive)
print("Positive similarity:", positive_similarity.numpy())
negative_similarity = cosine_similarity(anchor, negative)
print("Negative similarity", negative_similarity.numpy())
