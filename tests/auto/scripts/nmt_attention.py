"""Translation with attention, as TensorFlow's tutorial has it."""

import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(21)
rng = np.random.default_rng(21)
words = "uno dos tres casa perro gato rojo verde grande come".split()
others = "one two three house dog cat red green big eats".split()
context_raw, target_raw = [], []
for _ in range(300):
    rows = rng.integers(0, len(words), size=rng.integers(2, 7))
    context_raw.append(" ".join(words[i] for i in rows))
    target_raw.append(" ".join(others[i] for i in rows[::-1]))
BUFFER_SIZE, BATCH_SIZE, UNITS = 300, 32, 12
is_train = rng.uniform(size=(300,)) < 0.8
context_raw, target_raw = np.array(context_raw), np.array(target_raw)
train_raw = (
    tf.data.Dataset.from_tensor_slices(
        (context_raw[is_train], target_raw[is_train])
    )
    .shuffle(BUFFER_SIZE, seed=2)
    .batch(BATCH_SIZE)
)
val_raw = tf.data.Dataset.from_tensor_slices(
    (context_raw[~is_train], target_raw[~is_train])
).batch(BATCH_SIZE)


def tf_lower_and_split_punct(text):
    text = tf.strings.lower(text)
    text = tf.strings.strip(text)
    return tf.strings.join(["[START]", text, "[END]"], separator=" ")


context_text_processor = tf.keras.layers.TextVectorization(
    standardize=tf_lower_and_split_punct, max_tokens=50, ragged=True
)
context_text_processor.adapt(train_raw.map(lambda context, target: context))
target_text_processor = tf.keras.layers.TextVectorization(
    standardize=tf_lower_and_split_punct, max_tokens=50, ragged=True
)
target_text_processor.adapt(train_raw.map(lambda context, target: target))


def process_text(context, target):
    context = context_text_processor(context).to_tensor()
    target = target_text_processor(target)
    targ_in = target[:, :-1].to_tensor()
    targ_out = target[:, 1:].to_tensor()
    return (context, targ_in), targ_out


train_ds = train_raw.map(process_text, tf.data.AUTOTUNE)
val_ds = val_raw.map(process_text, tf.data.AUTOTUNE)


class Encoder(tf.keras.layers.Layer):
    def __init__(self, text_processor, units):
        super().__init__()
        self.vocab_size = text_processor.vocabulary_size()
        self.embedding = tf.keras.layers.Embedding(
            self.vocab_size, units, mask_zero=True
        )
        self.rnn = tf.keras.layers.Bidirectional(
            merge_mode="sum",
            layer=tf.keras.layers.GRU(
                units,
                return_sequences=True,
                recurrent_initializer="glorot_uniform",
            ),
        )

    def call(self, x):
        return self.rnn(self.embedding(x))


class CrossAttention(tf.keras.layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__()
        self.mha = tf.keras.layers.MultiHeadAttention(
            key_dim=units, num_heads=1, **kwargs
        )
        self.layernorm = tf.keras.layers.LayerNormalization()
        self.add = tf.keras.layers.Add()

    def call(self, x, context):
        attn_output, _ = self.mha(
            query=x, value=context, return_attention_scores=True
        )
        x = self.add([x, attn_output])
        return self.layernorm(x)


class Decoder(tf.keras.layers.Layer):
    def __init__(self, text_processor, units):
        super().__init__()
        self.vocab_size = text_processor.vocabulary_size()
        self.embedding = tf.keras.layers.Embedding(
            self.vocab_size, units, mask_zero=True
        )
        self.rnn = tf.keras.layers.GRU(
            units,
            return_sequences=True,
            recurrent_initializer="glorot_uniform",
        )
        self.attention = CrossAttention(units)
        self.output_layer = tf.keras.layers.Dense(self.vocab_size)

    def call(self, context, x):
        x = self.rnn(self.embedding(x))
        return self.output_layer(self.attention(x, context))


class Translator(tf.keras.Model):
    def __init__(self, units, context_text_processor, target_text_processor):
        super().__init__()
        self.encoder = Encoder(context_text_processor, units)
        self.decoder = Decoder(target_text_processor, units)

    def call(self, inputs):
        context, x = inputs
        return self.decoder(self.encoder(context), x)


def masked_loss(y_true, y_pred):
    loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    loss = loss_fn(y_true, y_pred)
    mask = tf.cast(y_true != 0, loss.dtype)
    loss *= mask
    return tf.reduce_sum(loss) / tf.reduce_sum(mask)


def masked_acc(y_true, y_pred):
    y_pred = tf.argmax(y_pred, axis=-1)
    y_pred = tf.cast(y_pred, y_true.dtype)
    match = tf.cast(y_true == y_pred, tf.float32)
    mask = tf.cast(y_true != 0, tf.float32)
    return tf.reduce_sum(match) / tf.reduce_sum(mask)


model = Translator(UNITS, context_text_processor, target_text_processor)
model.compile(
    optimizer="adam", loss=masked_loss, metrics=[masked_acc, masked_loss]
)
print(model.evaluate(val_ds, steps=2, return_dict=True, verbose=0))
history = model.fit(
    train_ds.repeat(),
    epochs=3,
    steps_per_epoch=8,
    validation_data=val_ds,
    validation_steps=2,
    callbacks=[tf.keras.callbacks.EarlyStopping(patience=3)],
)
(context, target_in), _ = next(iter(val_ds))
print(model((context, target_in)).shape)
