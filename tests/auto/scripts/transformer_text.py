import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(17)


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(
            num_heads=num_heads, key_dim=embed_dim
        )
        self.ffn = keras.Sequential(
            [layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)]
        )
        self.layernorm1 = layers.LayerNormalization(epsilon=1e-6)
        self.layernorm2 = layers.LayerNormalization(epsilon=1e-6)
        self.dropout1 = layers.Dropout(rate)
        self.dropout2 = layers.Dropout(rate)

    def call(self, inputs):
        attn_output = self.dropout1(self.att(inputs, inputs))
        out1 = self.layernorm1(inputs + attn_output)
        ffn_output = self.dropout2(self.ffn(out1))
        return self.layernorm2(out1 + ffn_output)


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb = layers.Embedding(vocab_size, embed_dim)
        self.pos_emb = layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        positions = ops.arange(0, ops.shape(x)[-1])
        return self.token_emb(x) + self.pos_emb(positions)


vocab_size, maxlen = 100, 16
x = np.random.randint(1, vocab_size, (401, maxlen))
y = (x[:, :8].sum(axis=1) > x[:, 8:].sum(axis=1)).astype("int32")
inputs = layers.Input(shape=(maxlen,))
h = TokenAndPositionEmbedding(maxlen, vocab_size, 16)(inputs)
h = TransformerBlock(16, 2, 16)(h)
h = layers.GlobalAveragePooling1D()(h)
h = layers.Dropout(0.1)(h)
outputs = layers.Dense(2, activation="softmax")(h)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile(
    optimizer=keras.optimizers.Adam(0.003),
    loss="sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
history = model.fit(
    x[:321],
    y[:321],
    batch_size=32,
    epochs=5,
    validation_data=(x[321:], y[321:]),
)
