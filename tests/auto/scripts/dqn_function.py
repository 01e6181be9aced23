"""Double deep Q-learning whose update is a compiled function."""

import random
from collections import deque

import keras
import numpy as np
import tensorflow as tf

SEED = 7
random.seed(SEED)
np.random.seed(SEED)
tf.random.set_seed(SEED)
GAMMA, TAU, BATCH = 0.95, 0.1, 17
FLOAT = keras.backend.floatx()


class ReplayBuffer:
    def __init__(self, capacity):
        self.buffer = deque(maxlen=capacity)

    def add(self, *transition):
        self.buffer.append(transition)

    def sample(self, size):
        batch = random.sample(self.buffer, size)
        state, action, reward, following, done = map(np.array, zip(*batch))
        return (
            state.astype(FLOAT),
            action.astype("int32"),
            reward.astype(FLOAT),
            following.astype(FLOAT),
            done.astype(FLOAT),
        )

    def __len__(self):
        return len(self.buffer)


class CartOnRail:
    def reset(self):
        self.state = np.random.uniform(-0.3, 0.3, size=2)
        self.steps = 0
        return self.state

    def step(self, action):
        x, v = self.state
        v = 0.9 * v + (0.2 if action else -0.2) + 0.05 * x
        x = x + v
        self.state = np.array([x, v])
        self.steps += 1
        return self.state, 1.0 - abs(x), abs(x) > 1 or self.steps == 25


def build():
    return keras.Sequential(
        [
            keras.layers.Input((2,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(2),
        ]
    )


class Agent:
    def __init__(self):
        self.q, self.target = build(), build()
        self.target.set_weights(self.q.get_weights())
        self.optimizer = keras.optimizers.Adam(5e-3, global_clipnorm=1.0)
        self.epsilon = 1.0

    def act(self, state):
        if random.random() < self.epsilon:
            return random.randrange(2)
        values = self.q(state[None].astype(FLOAT))
        return int(tf.argmax(values[0]))

    @tf.function
    def train_step(self, states, actions, rewards, next_states, dones):
        best = tf.argmax(self.q(next_states), axis=1, output_type=tf.int32)
        rows = tf.range(tf.shape(actions)[0])
        following = tf.gather_nd(
            self.target(next_states), tf.stack([rows, best], axis=1)
        )
        targets = rewards + GAMMA * (1.0 - dones) * following
        with tf.GradientTape() as tape:
            q = self.q(states, training=True)
            q = tf.reduce_sum(q * tf.one_hot(actions, 2, dtype=q.dtype), axis=1)
            td_error = targets - q
            loss = keras.losses.huber(targets[:, None], q[:, None])
        variables = self.q.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables))
        return loss, tf.abs(td_error)

    @tf.function
    def update_target(self):
        for own, goal in zip(self.q.variables, self.target.variables):
            goal.assign(TAU * own + (1 - TAU) * goal)


env, agent, memory = CartOnRail(), Agent(), ReplayBuffer(200)
for episode in range(12):
    state, done, total, losses = env.reset(), False, 0.0, []
    while not done:
        action = agent.act(state)
        following, reward, done = env.step(action)
        memory.add(state, action, reward, following, done)
        state = following
        total += reward
        if len(memory) >= BATCH:
            loss, errors = agent.train_step(*memory.sample(BATCH))
            assert errors.shape == (BATCH,)
            losses.append(np.mean(loss))
            agent.update_target()
    agent.epsilon = max(0.05, agent.epsilon * 0.8)
    print(f"episode {episode}: {total:.4f}, loss {np.mean(losses or [0]):.6f}")
agent.q.save("q.keras")
