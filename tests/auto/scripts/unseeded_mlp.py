from keras.layers import Dense
from keras.models import Sequential
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
model = Sequential()
model.add(Dense(12, input_shape=(30,), activation="relu"))
model.add(Dense(8, activation="relu"))
model.add(Dense(1, activation="sigmoid"))
model.compile(
    loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"]
)
model.fit(X, y, epochs=6, batch_size=10, validation_split=0.33, verbose=0)
_, accuracy = model.evaluate(X, y, verbose=0)
print("Accuracy is known:", 0 <= accuracy <= 1)
