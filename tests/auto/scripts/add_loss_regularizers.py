import keras
from keras import layers, ops, regularizers
from sklearn.datasets import load_breast_cancer


@keras.saving.register_keras_serializable("mine")
class ActivityRegularizationLayer(layers.Layer):
    def __init__(self, rate=1e-2, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def call(self, inputs):
        self.add_loss(self.rate * ops.mean(ops.square(inputs)))
        return inputs

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


keras.utils.set_random_seed(9)
x, y = load_breast_cancer(return_X_y=True)
x = (x - x.mean(axis=0)) / x.std(axis=0)
inputs = keras.Input((30,))
h = layers.Dense(
    12,
    activation="relu",
    kernel_regularizer=regularizers.L1L2(1e-4, 1e-3),
    activity_regularizer=regularizers.L2(1e-3),
)(inputs)
h = ActivityRegularizationLayer()(h)
outputs = layers.Dense(1)(h)
model = keras.Model(inputs, outputs)
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
)
model.fit(x, y, batch_size=40, epochs=4, validation_split=0.25)
model.save("model.keras")
