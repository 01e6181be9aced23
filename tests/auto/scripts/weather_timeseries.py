import keras
import numpy as np

keras.utils.set_random_seed(20)
hours = np.arange(1200)
rng = np.random.default_rng(7)
temperature = 10 + 8 * np.sin(2 * np.pi * hours / 24) + rng.normal(size=1200)
pressure = 1000 + np.cumsum(rng.normal(size=1200))
raw = np.stack([temperature, pressure], axis=1)
split = 900
mean, std = raw[:split].mean(axis=0), raw[:split].std(axis=0)
data = (raw - mean) / std
past, future = 24, 6


def windows(values, start):
    return keras.utils.timeseries_dataset_from_array(
        values[:-future],
        values[past + future - 1 :, 0],
        sequence_length=past,
        sampling_rate=1,
        batch_size=64,
    )


dataset_train = windows(data[:split], 0)
dataset_val = windows(data[split:], split)
inputs = keras.layers.Input(shape=(past, 2))
lstm_out = keras.layers.LSTM(12)(inputs)
outputs = keras.layers.Dense(1)(lstm_out)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile(optimizer=keras.optimizers.Adam(0.003), loss="mse")
path_checkpoint = "model_checkpoint.weights.h5"
history = model.fit(
    dataset_train,
    epochs=3,
    validation_data=dataset_val,
    callbacks=[
        keras.callbacks.EarlyStopping(
            monitor="val_loss", min_delta=0, patience=5
        ),
        keras.callbacks.ModelCheckpoint(
            monitor="val_loss",
            filepath=path_checkpoint,
            verbose=1,
            save_weights_only=True,
            save_best_only=True,
        ),
    ],
)
for x, y in dataset_val.take(2):
    print(model.predict(x)[:3, 0], y[:3].numpy())
