"""Classifies scikit-learn's digits with a small MLP."""

import argparse

import keras
from keras import layers
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


def get_data():
    x, y = load_digits(return_X_y=True)
    return train_test_split(x / 16.0, y, test_size=0.2, random_state=1)


def get_model(hidden):
    return keras.Sequential(
        [
            keras.Input(shape=(64,)),
            layers.Dense(hidden, activation="relu"),
            layers.Dense(hidden // 2, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32)
    args = parser.parse_args()

    keras.utils.set_random_seed(812)
    x_train, x_test, y_train, y_test = get_data()
    model = get_model(args.hidden)
    model.summary()
    model.compile(
        optimizer="adam",
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=args.batch_size,
        epochs=args.epochs,
        validation_split=0.1,
    )
    score = model.evaluate(x_test, y_test, verbose=0)
    print("Test loss:", score[0])
    print("Test accuracy:", score[1])


if __name__ == "__main__":
    main()
