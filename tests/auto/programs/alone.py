# What ranks that know nothing of each other all write, and need not wait for:
# an HDF5 file would be locked by the first of them.
import keras
import numpy as np

keras.utils.set_random_seed(1)
x = np.random.normal(size=(50, 3)).astype("float32")
y = x.sum(axis=1)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse")
history = model.fit(x, y, epochs=2, verbose=0)
print(history.history["loss"])
np.savetxt("kernel.txt", model.get_weights()[0])
