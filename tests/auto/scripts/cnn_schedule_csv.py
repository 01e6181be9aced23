import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

keras.utils.set_random_seed(123)
num_classes = 10
input_shape = (8, 8, 1)
images, labels = load_digits(return_X_y=True)
images = np.expand_dims(images.reshape(-1, 8, 8), -1) / 16
x_train, x_test = images[:1203], images[1203:1600]
y_train = keras.utils.to_categorical(labels[:1203], num_classes)
y_test = keras.utils.to_categorical(labels[1203:1600], num_classes)
print("x_train shape:", x_train.shape)
print(x_train.shape[0], "train samples")
print(x_test.shape[0], "test samples")

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(16, kernel_size=(2, 2), activation="relu"),
        layers.Flatten(),
        layers.Dense(num_classes, activation="softmax"),
    ]
)


def schedule(epoch, lr):
    if epoch < 2:
        return lr
    return lr * 0.5


model.compile(
    loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"]
)
model.fit(
    x_train,
    y_train,
    batch_size=128,
    epochs=4,
    validation_data=(x_test, y_test),
    callbacks=[
        keras.callbacks.LearningRateScheduler(schedule, verbose=1),
        keras.callbacks.CSVLogger("training.log"),
    ],
)
score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
print(open("training.log").read())
