import keras
import tensorflow as tf
from sklearn.datasets import load_digits

keras.utils.set_random_seed(3)
strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
print("Number of devices: {}".format(strategy.num_replicas_in_sync))
BATCH_SIZE = 64 * strategy.num_replicas_in_sync

x, y = load_digits(return_X_y=True)
x = x / 16.0
train = tf.data.Dataset.from_tensor_slices((x[:1290], y[:1290]))
train = train.batch(BATCH_SIZE)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.Adam(),
        metrics=["accuracy"],
    )
model.fit(train, epochs=3)
