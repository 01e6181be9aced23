"""Trains one model file with whichever framework Keras computes with.

The first run makes the file, and each further one goes on from it:

    for backend in tensorflow torch jax; do
        KERAS_BACKEND=$backend keras-ring run -np 2 -- \
            python examples/keras_any_backend.py --model=digits.keras
    done

Nothing in this program is of one framework.
"""

import os

import keras
from absl import app, flags
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_ring as kr

FLAGS = flags.FLAGS

flags.DEFINE_string("model", "digits.keras", "File to train on and to save.")
flags.DEFINE_integer("epochs", 5, "Number of epochs.", lower_bound=1)
flags.DEFINE_integer(
    "batch_size", 64, "Images in a step, on all ranks together.", lower_bound=1
)


@keras.saving.register_keras_serializable("examples")
class Gate(keras.layers.Layer):
    """A dense layer, multiplied by a sigmoid of another one."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.values = keras.layers.Dense(units)
        self.gates = keras.layers.Dense(units)

    def build(self, input_shape):
        """Makes the weights."""
        self.values.build(input_shape)
        self.gates.build(input_shape)

    def call(self, inputs):
        """Returns the values that the gates let through."""
        return self.values(inputs) * keras.ops.sigmoid(self.gates(inputs))

    def get_config(self):
        """Returns the arguments, for saving."""
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("examples")
def smoothed(labels, logits):
    """Returns the cross entropy with labels that are not quite certain."""
    wanted = 0.9 * keras.ops.one_hot(labels, 10) + 0.01
    return keras.losses.categorical_crossentropy(
        wanted, logits, from_logits=True
    )


def make_model():
    """Returns a compiled model, as a program in one process would."""
    model = keras.Sequential(
        [
            keras.Input((64,)),
            Gate(64),
            keras.layers.Dropout(0.1),
            Gate(64),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        kr.DistributedOptimizer(keras.optimizers.Adam(0.003)),
        loss=smoothed,
        metrics=["sparse_categorical_accuracy"],
    )
    return model


def main(argv):
    """Trains, saves, and tests on images that were not trained on."""
    del argv
    kr.init()
    keras.utils.set_random_seed(1)
    images, labels = load_digits(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(
        (images / 16.0).astype("float32"), labels, test_size=0.2, random_state=1
    )
    # All ranks look before one of them writes.
    exists = kr.broadcast_object(os.path.exists(FLAGS.model))
    model = kr.load_model(FLAGS.model) if exists else make_model()
    model.fit(
        *kr.data.shard((x_train, y_train), shuffle=True),
        batch_size=max(1, FLAGS.batch_size // kr.size()),
        epochs=FLAGS.epochs,
        callbacks=[
            kr.callbacks.BroadcastGlobalVariablesCallback(),
            kr.callbacks.MetricAverageCallback(),
            kr.callbacks.ModelCheckpoint(FLAGS.model),
        ],
        verbose=2 if kr.rank() == 0 else 0,
    )
    results = kr.evaluate(model, x_test, y_test, return_dict=True, verbose=0)
    if kr.rank() == 0:
        accuracy = results["sparse_categorical_accuracy"]
        print(f"{keras.backend.backend()}: test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    app.run(main)
