import numpy as np
import tensorflow as tf
from sklearn.datasets import load_iris

tf.random.set_seed(0)
np.random.seed(0)

X, Y = load_iris(return_X_y=True)
X = X.astype("float32")
dense1 = tf.keras.layers.Dense(
    10, "relu", kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)
)
dense2 = tf.keras.layers.Dense(
    3, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)
)
net = tf.keras.Sequential([dense1, dense2])
opt = tf.keras.optimizers.SGD(0.05)
cce = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
losses = []
for epoch in range(5):
    perm = np.random.permutation(len(X))
    total = 0.0
    for i in range(0, len(X), 16):
        idx = perm[i : i + 16]
        with tf.GradientTape() as tape:
            loss = cce(Y[idx], net(X[idx]))
        grads = tape.gradient(loss, net.trainable_variables)
        opt.apply_gradients(zip(grads, net.trainable_variables))
        total += float(loss) * len(idx)
    losses.append(total / len(X))
    print("epoch", epoch, "loss", losses[-1])
np.savetxt("losses.csv", losses)
acc = (net(X).numpy().argmax(1) == Y).mean()
print("accuracy", acc)
