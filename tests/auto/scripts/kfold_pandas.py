import keras
import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import LabelBinarizer

keras.utils.set_random_seed(2023)
frame = load_wine(as_frame=True).frame
target = frame.pop("target")
frame = (frame - frame.mean()) / frame.std()
binarizer = LabelBinarizer()
oof = np.zeros((len(frame), 3))
folds = StratifiedKFold(n_splits=3, shuffle=True, random_state=1)
for fold, (train_idx, valid_idx) in enumerate(folds.split(frame, target)):
    X_train, X_valid = frame.iloc[train_idx], frame.iloc[valid_idx]
    y_train = binarizer.fit_transform(target.iloc[train_idx])
    y_valid = binarizer.transform(target.iloc[valid_idx])
    model = keras.Sequential(
        [
            keras.layers.Dense(16, activation="selu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss="categorical_crossentropy",
        metrics=["accuracy"],
    )
    es = keras.callbacks.EarlyStopping(
        monitor="val_accuracy",
        mode="max",
        patience=2,
        restore_best_weights=True,
    )
    model.fit(
        X_train,
        y_train,
        validation_data=(X_valid, y_valid),
        epochs=8,
        batch_size=16,
        callbacks=[es],
        verbose=0,
    )
    oof[valid_idx] = model.predict(X_valid, verbose=0)
    acc = (oof[valid_idx].argmax(1) == target.iloc[valid_idx]).mean()
    print(f"fold {fold}: {acc:.4f}")
pd.DataFrame(oof, columns=["a", "b", "c"]).to_csv("oof.csv")
print("CV accuracy:", (oof.argmax(1) == target).mean())
