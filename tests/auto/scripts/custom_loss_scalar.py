import tensorflow as tf
from tensorflow import keras
from sklearn.datasets import load_diabetes

keras.utils.set_random_seed(25)


def rmse_plus_bias(y_true, y_pred):
    y_true = tf.cast(tf.reshape(y_true, tf.shape(y_pred)), y_pred.dtype)
    error = y_true - y_pred
    return tf.reduce_mean(tf.square(error)) + 0.1 * tf.reduce_mean(
        tf.abs(error)
    )


def r2(y_true, y_pred):
    y_true = tf.cast(tf.reshape(y_true, tf.shape(y_pred)), y_pred.dtype)
    return 1 - tf.reduce_mean(tf.square(y_true - y_pred))


x, y = load_diabetes(return_X_y=True)
x, y = x * 20, (y - y.mean()) / y.std()
model = keras.Sequential(
    [keras.layers.Dense(10, "relu"), keras.layers.Dense(1)]
)
model.compile(optimizer="rmsprop", loss=rmse_plus_bias, metrics=[r2])
model.fit(x, y, epochs=4, batch_size=32, validation_split=0.1)
