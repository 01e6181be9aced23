# Three kinds of wine, few of one of them.
import keras
import numpy as np
from keras import regularizers
from sklearn.datasets import load_wine
from sklearn.utils.class_weight import compute_class_weight

keras.utils.set_random_seed(0)
data = load_wine()
x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
y = data.target
keep = np.concatenate([np.where(y != 2)[0], np.where(y == 2)[0][:17]])
x, y = x[keep], y[keep]
weights = compute_class_weight("balanced", classes=np.unique(y), y=y)
class_weight = dict(enumerate(weights))
print("class weights", class_weight)

model = keras.Sequential()
model.add(keras.layers.Input((13,)))
model.add(
    keras.layers.Dense(
        24, activation="relu", kernel_regularizer=regularizers.l2(1e-3)
    )
)
model.add(
    keras.layers.Dense(
        3, activation="softmax", bias_regularizer=regularizers.L1(1e-4)
    )
)
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(),
    optimizer=keras.optimizers.SGD(
        0.05, momentum=0.9, nesterov=True, clipnorm=0.5
    ),
    metrics=["accuracy"],
    weighted_metrics=["accuracy"],
)
model.fit(x, y, epochs=10, batch_size=20, class_weight=class_weight, verbose=2)
print(model.evaluate(x, y, return_dict=True))
