import random

import keras
import numpy as np
from keras import ops
from sklearn.datasets import load_digits

keras.utils.set_random_seed(14)
epochs = 3
batch_size = 32
margin = 1

x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32")


def make_pairs(x, y):
    digit_indices = [np.where(y == i)[0] for i in range(10)]
    pairs, labels = [], []
    for idx1 in range(len(x)):
        x1, label1 = x[idx1], y[idx1]
        idx2 = random.choice(digit_indices[label1])
        pairs += [[x1, x[idx2]]]
        labels += [0]
        label2 = random.randint(0, 9)
        while label2 == label1:
            label2 = random.randint(0, 9)
        idx2 = random.choice(digit_indices[label2])
        pairs += [[x1, x[idx2]]]
        labels += [1]
    return np.array(pairs), np.array(labels).astype("float32")


pairs_train, labels_train = make_pairs(x[:201], y[:201])
pairs_test, labels_test = make_pairs(x[201:280], y[201:280])


def euclidean_distance(vects):
    x, y = vects
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


embedding_network = keras.Sequential(
    [
        keras.layers.Input((64,)),
        keras.layers.Dense(24, activation="tanh"),
        keras.layers.Dense(8),
    ]
)
input_1 = keras.layers.Input((64,))
input_2 = keras.layers.Input((64,))
tower_1 = embedding_network(input_1)
tower_2 = embedding_network(input_2)
merge_layer = keras.layers.Lambda(euclidean_distance, output_shape=(1,))(
    [tower_1, tower_2]
)
output_layer = keras.layers.Dense(1, activation="sigmoid")(merge_layer)
siamese = keras.Model(inputs=[input_1, input_2], outputs=output_layer)


def loss(margin=1):
    def contrastive_loss(y_true, y_pred):
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean((1 - y_true) * square_pred + y_true * margin_square)

    return contrastive_loss


siamese.compile(
    loss=loss(margin=margin), optimizer="RMSprop", metrics=["accuracy"]
)
history = siamese.fit(
    [pairs_train[:, 0], pairs_train[:, 1]],
    labels_train,
    validation_data=([pairs_test[:, 0], pairs_test[:, 1]], labels_test),
    batch_size=batch_size,
    epochs=epochs,
)
results = siamese.evaluate([pairs_test[:, 0], pairs_test[:, 1]], labels_test)
print("test loss, test acc:", results)
