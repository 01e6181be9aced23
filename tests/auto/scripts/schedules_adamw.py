import keras
from keras.optimizers import schedules
from sklearn.datasets import load_digits


def run(name, optimizer, x, y):
    keras.utils.set_random_seed(10)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(24, activation="relu"),
            keras.layers.Dense(10),
        ],
        name=name,
    )
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(x, y, batch_size=100, epochs=3, verbose=0)
    loss, accuracy = model.evaluate(x, y, verbose=0)
    print(f"{name:12s} loss {loss:.5f} accuracy {accuracy:.4f}")


if __name__ == "__main__":
    x, y = load_digits(return_X_y=True)
    x, y = x[:1250] / 16, y[:1250]
    run(
        "cosine",
        keras.optimizers.AdamW(
            schedules.CosineDecay(1e-4, 30, warmup_target=1e-2, warmup_steps=8),
            weight_decay=0.01,
        ),
        x,
        y,
    )
    run(
        "exponential",
        keras.optimizers.SGD(
            schedules.ExponentialDecay(0.5, 10, 0.9, staircase=True),
            momentum=0.9,
            global_clipnorm=1.0,
        ),
        x,
        y,
    )
    run(
        "ema",
        keras.optimizers.Adam(
            0.005, use_ema=True, ema_overwrite_frequency=7, clipvalue=0.02
        ),
        x,
        y,
    )
