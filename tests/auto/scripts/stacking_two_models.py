import keras
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

keras.utils.set_random_seed(50)
X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(0)) / X.std(0)
X1, y1, X2, y2 = X[:300], y[:300], X[300:], y[300:]


def mlp(n):
    m = keras.Sequential(
        [
            keras.layers.Dense(n, activation="relu"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    m.compile(optimizer="adam", loss="binary_crossentropy")
    return m


first = mlp(8)
first.fit(X1, y1, epochs=4, batch_size=32, verbose=0)
features = np.hstack([X2, first.predict(X2, verbose=0)])
second = mlp(16)
second.fit(features[:200], y2[:200], epochs=6, batch_size=32, verbose=0)
p = second.predict(features[200:], verbose=0)
print("AUC of the second model: %.4f" % roc_auc_score(y2[200:], p[:, 0]))
