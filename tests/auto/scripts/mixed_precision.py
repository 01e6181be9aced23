import keras
from keras import layers, mixed_precision
from sklearn.datasets import load_digits

keras.utils.set_random_seed(6)
mixed_precision.set_global_policy("mixed_float16")
x, y = load_digits(return_X_y=True)
x = x.astype("float32") / 16
inputs = keras.Input(shape=(64,), name="digits")
h = layers.Dense(32, activation="relu", name="dense_1")(inputs)
print(h.dtype, model_dtype := keras.config.dtype_policy().variable_dtype)
h = layers.Dense(10, name="dense_logits")(h)
outputs = layers.Activation("softmax", dtype="float32", name="predictions")(h)
model = keras.Model(inputs, outputs)
model.compile(
    loss="sparse_categorical_crossentropy",
    optimizer=keras.optimizers.SGD(0.1),
    metrics=["accuracy"],
)
model.fit(x[:1500], y[:1500], batch_size=64, epochs=4, validation_split=0.2)
scores = model.evaluate(x[1500:], y[1500:], verbose=2)
print("Test accuracy:", scores[1])
print("loss scale:", float(model.optimizer.dynamic_scale))
