"""A trainer class whose compiled step counts hits and returns predictions."""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

tf.keras.utils.set_random_seed(17)
x, y = load_wine(return_X_y=True)
x = StandardScaler().fit_transform(x)
order = np.random.permutation(len(x))
floatx = tf.keras.backend.floatx()
x, y = x[order].astype(floatx), y[order].astype("int32")
weights = tf.constant(np.where(y == 1, 0.5, 1.0), floatx)


class Trainer:
    def __init__(self, model, optimizer):
        self.model = model
        self.optimizer = optimizer
        self.loss = tf.keras.losses.SparseCategoricalCrossentropy(
            reduction=None
        )
        self.mean_loss = tf.keras.metrics.Mean()
        self.auc = tf.keras.metrics.AUC(num_thresholds=20)
        self.steps = tf.Variable(0, dtype=tf.int64)
        self.seen = tf.Variable(0)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 13], floatx),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None], floatx),
            tf.TensorSpec([], floatx),
        ]
    )
    def step(self, x, y, weight, rate):
        with tf.GradientTape() as tape:
            probabilities = self.model(x, training=True)
            loss = tf.reduce_mean(self.loss(y, probabilities) * weight)
            total = loss + tf.add_n(self.model.losses)
        gradients = tape.gradient(total, self.model.trainable_variables)
        self.optimizer.learning_rate.assign(rate)
        self.optimizer.apply_gradients(
            zip(gradients, self.model.trainable_variables)
        )
        self.mean_loss(loss)
        self.auc.update_state(y == 1, probabilities[:, 1])
        self.steps.assign_add(1)
        self.seen.assign_add(tf.shape(x)[0])
        found = tf.argmax(probabilities, axis=1, output_type=tf.int32)
        hits = tf.reduce_sum(tf.cast(found == y, tf.int32))
        never = tf.reduce_sum(tf.cast(found == 7, tf.int32))
        return {
            "loss": total,
            "hits": hits,
            "never": never,
            "rate": rate,
        }, found


model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(12, "tanh", kernel_regularizer="l2"),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dense(3, "softmax"),
    ]
)
trainer = Trainer(model, tf.keras.optimizers.SGD(0.1, momentum=0.9))
log = []
for epoch in range(4):
    hits = 0
    for begin in range(0, 165, 41):
        rows = slice(begin, min(begin + 41, 165))
        results, found = trainer.step(
            x[rows], y[rows], weights[rows], 0.1 / (epoch + 1)
        )
        hits += int(results["hits"])
        assert found.shape == y[rows].shape
        assert hits >= int((found.numpy() == y[rows]).sum())
        log.append([float(each) for each in results.values()])
    print(
        f"{epoch}: {hits} hits, loss {trainer.mean_loss.result():.5f}, "
        f"auc {trainer.auc.result():.4f}, {int(trainer.steps)} steps, "
        f"{int(trainer.seen)} rows"
    )
    trainer.mean_loss.reset_state()
    trainer.auc.reset_state()
np.savetxt("log.csv", log)
np.savez("weights.npz", *model.get_weights())
