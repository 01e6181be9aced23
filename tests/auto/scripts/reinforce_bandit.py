"""Policy gradients on a walk along a line, an episode an update."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

seed = 42
gamma = 0.95
max_steps = 15
keras.utils.set_random_seed(seed)
rng = np.random.default_rng(seed)


class Walk:
    def reset(self):
        self.position, self.goal = 0.0, 3.0
        return np.array([self.position, self.goal - self.position])

    def step(self, action):
        self.position += 1.0 if action == 1 else -1.0
        reward = 1.0 if self.position >= self.goal else -0.1
        done = self.position >= self.goal or self.position < -5
        state = np.array([self.position, self.goal - self.position])
        return state, reward, done


inputs = layers.Input(shape=(2,))
common = layers.Dense(16, activation="tanh")(inputs)
action = layers.Dense(2, activation="softmax")(common)
critic = layers.Dense(1)(common)
model = keras.Model(inputs=inputs, outputs=[action, critic])
optimizer = keras.optimizers.Adam(learning_rate=0.01)
huber_loss = keras.losses.Huber()
env = Walk()
running_reward = 0
for episode in range(12):
    state = env.reset()
    log_probs, values, rewards = [], [], []
    with tf.GradientTape() as tape:
        for _ in range(max_steps):
            probs, value = model(ops.expand_dims(state, 0))
            values.append(value[0, 0])
            p = probs.numpy()[0].astype("float64")
            chosen = rng.choice(2, p=p / p.sum())
            log_probs.append(ops.log(probs[0, chosen]))
            state, reward, done = env.step(chosen)
            rewards.append(reward)
            if done:
                break
        running_reward = 0.05 * sum(rewards) + 0.95 * running_reward
        returns, total = [], 0.0
        for r in rewards[::-1]:
            total = r + gamma * total
            returns.insert(0, total)
        actor_losses, critic_losses = [], []
        for log_prob, value, ret in zip(log_probs, values, returns):
            actor_losses.append(-log_prob * (ret - ops.stop_gradient(value)))
            critic_losses.append(
                huber_loss(ops.expand_dims(value, 0), ops.expand_dims(ret, 0))
            )
        loss_value = sum(actor_losses) + sum(critic_losses)
    grads = tape.gradient(loss_value, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    if episode % 4 == 3:
        print(f"running reward: {running_reward:.2f} at episode {episode}")
