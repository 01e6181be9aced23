import tensorflow as tf
from sklearn.datasets import load_digits

AUTOTUNE = tf.data.AUTOTUNE
tf.keras.utils.set_random_seed(100)

images, labels = load_digits(return_X_y=True)
full = tf.data.Dataset.from_tensor_slices((images, labels))
ds_train = full.take(1290)
ds_test = full.skip(1290)


def normalize_img(image, label):
    return tf.cast(image, tf.float32) / 16.0, label


ds_train = ds_train.map(normalize_img, num_parallel_calls=AUTOTUNE)
ds_train = ds_train.cache()
ds_train = ds_train.shuffle(1290, seed=4)
ds_train = ds_train.batch(128)
ds_train = ds_train.prefetch(AUTOTUNE)
ds_test = ds_test.map(normalize_img, num_parallel_calls=AUTOTUNE)
ds_test = ds_test.batch(128).cache().prefetch(AUTOTUNE)

model = tf.keras.models.Sequential(
    [
        tf.keras.layers.Dense(64, activation="relu"),
        tf.keras.layers.Dense(10),
    ]
)
model.compile(
    optimizer=tf.keras.optimizers.Adam(0.005),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
)
model.fit(ds_train, epochs=6, validation_data=ds_test)
