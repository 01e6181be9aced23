import keras
import numpy as np
import tensorflow as tf
from keras import layers

EMBEDDING_SIZE = 6
keras.utils.set_random_seed(15)
rng = np.random.RandomState(15)
num_users, num_movies = 40, 60
users = rng.randint(num_users, size=1205)
movies = rng.randint(num_movies, size=1205)
taste = rng.normal(size=(num_users, 2))
kind = rng.normal(size=(num_movies, 2))
ratings = (taste[users] * kind[movies]).sum(1)
ratings = (ratings - ratings.min()) / (ratings.max() - ratings.min())


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        self.user_embedding = layers.Embedding(
            num_users,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(
            num_movies,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user = self.user_embedding(inputs[:, 0])
        movie = self.movie_embedding(inputs[:, 1])
        dot = tf.reduce_sum(user * movie, axis=1, keepdims=True)
        x = dot + self.user_bias(inputs[:, 0]) + self.movie_bias(inputs[:, 1])
        return tf.nn.sigmoid(x)


x = np.stack([users, movies], axis=1)
model = RecommenderNet(num_users, num_movies, EMBEDDING_SIZE)
model.compile(
    loss=keras.losses.BinaryCrossentropy(),
    optimizer=keras.optimizers.Adam(learning_rate=0.01),
)
history = model.fit(
    x=x[:1080],
    y=ratings[:1080],
    batch_size=64,
    epochs=3,
    verbose=1,
    validation_data=(x[1080:], ratings[1080:]),
)
seen = movies[users == 3]
candidates = np.setdiff1d(np.arange(num_movies), seen)
scores = model.predict(
    np.stack([np.full(len(candidates), 3), candidates], axis=1)
).flatten()
print("for user 3:", candidates[scores.argsort()[-5:][::-1]])
