import numpy as np
import tensorflow as tf
from sklearn import datasets, preprocessing
from tensorflow import keras

tf.keras.utils.set_random_seed(7)

iris = datasets.load_iris()
X = preprocessing.StandardScaler().fit_transform(iris.data)
Y = keras.utils.to_categorical(iris.target, 3)
order = np.random.permutation(len(X))
X, Y = X[order], Y[order]
X_train, Y_train = X[:111], Y[:111]
X_test, Y_test = X[111:], Y[111:]

inputs = keras.layers.Input(shape=(4,), name="features")
x = keras.layers.Dense(16, activation="tanh")(inputs)
x = keras.layers.Dense(8, activation="tanh")(x)
outputs = keras.layers.Dense(3, activation="softmax")(x)
model = keras.Model(inputs, outputs)

model.compile(
    optimizer=keras.optimizers.RMSprop(learning_rate=0.02),
    loss="categorical_crossentropy",
    metrics=["accuracy"],
)
early = keras.callbacks.EarlyStopping(
    monitor="val_loss", patience=3, restore_best_weights=True, verbose=1
)
plateau = keras.callbacks.ReduceLROnPlateau(
    monitor="val_loss", factor=0.3, patience=1, min_delta=1e-3, verbose=1
)
history = model.fit(
    X_train,
    Y_train,
    epochs=25,
    batch_size=16,
    validation_data=(X_test, Y_test),
    callbacks=[early, plateau],
    verbose=2,
)
print("stopped after", len(history.history["loss"]), "epochs")
print(model.evaluate(X_test, Y_test, verbose=0))
pred = np.argmax(model.predict(X_test), axis=1)
print("confusion:")
print(tf.math.confusion_matrix(np.argmax(Y_test, axis=1), pred).numpy())
