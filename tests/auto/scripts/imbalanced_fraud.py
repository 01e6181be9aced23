"""Few of one class, as the example of fraud on keras.io."""

import keras
import numpy as np

keras.utils.set_random_seed(10)
rng = np.random.default_rng(10)
features = rng.normal(size=(1500, 12))
targets = (features[:, 0] + features[:, 1] > 2.4).astype("uint8")[:, None]
num_val_samples = int(len(features) * 0.2)
train_features = features[:-num_val_samples]
train_targets = targets[:-num_val_samples]
val_features = features[-num_val_samples:]
val_targets = targets[-num_val_samples:]
counts = np.bincount(train_targets[:, 0])
weight_for_0, weight_for_1 = 1.0 / counts[0], 1.0 / counts[1]
mean = np.mean(train_features, axis=0)
train_features -= mean
val_features -= mean
std = np.std(train_features, axis=0)
train_features /= std
val_features /= std
model = keras.Sequential(
    [
        keras.Input(shape=train_features.shape[1:]),
        keras.layers.Dense(16, activation="relu"),
        keras.layers.Dense(16, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
metrics = [
    keras.metrics.FalseNegatives(name="fn"),
    keras.metrics.FalsePositives(name="fp"),
    keras.metrics.TrueNegatives(name="tn"),
    keras.metrics.TruePositives(name="tp"),
    keras.metrics.Precision(name="precision"),
    keras.metrics.Recall(name="recall"),
    keras.metrics.AUC(name="prc", curve="PR"),
]
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss="binary_crossentropy",
    metrics=metrics,
    weighted_metrics=[keras.metrics.F1Score(threshold=0.5)],
)
callbacks = [keras.callbacks.ModelCheckpoint("fraud_model_{epoch}.keras")]
class_weight = {0: weight_for_0, 1: weight_for_1}
model.fit(
    train_features,
    train_targets,
    batch_size=100,
    epochs=4,
    verbose=2,
    callbacks=callbacks,
    validation_data=(val_features, val_targets),
    class_weight=class_weight,
)
found = model.predict(val_features, batch_size=64, verbose=0) > 0.5
print("found", int((found == val_targets).sum()), "of", len(val_targets))
