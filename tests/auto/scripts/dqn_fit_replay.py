"""Q-learning as in many a post: a `fit` of one epoch for each transition."""

import random
from collections import deque

import numpy as np
import tensorflow as tf
from tensorflow.keras import Sequential
from tensorflow.keras.layers import Dense, Input
from tensorflow.keras.optimizers import Adam

random.seed(0)
np.random.seed(0)
tf.random.set_seed(0)


class DQNAgent:
    def __init__(self, state_size, action_size):
        self.state_size = state_size
        self.action_size = action_size
        self.memory = deque(maxlen=2000)
        self.gamma = 0.95
        self.epsilon = 1.0
        self.epsilon_min = 0.01
        self.epsilon_decay = 0.9
        self.learning_rate = 0.01
        self.model = self._build_model()

    def _build_model(self):
        model = Sequential()
        model.add(Input((self.state_size,)))
        model.add(Dense(12, activation="relu"))
        model.add(Dense(self.action_size, activation="linear"))
        model.compile(loss="mse", optimizer=Adam(self.learning_rate))
        return model

    def memorize(self, state, action, reward, next_state, done):
        self.memory.append((state, action, reward, next_state, done))

    def act(self, state):
        if np.random.rand() <= self.epsilon:
            return random.randrange(self.action_size)
        act_values = self.model.predict(state, verbose=0)
        return np.argmax(act_values[0])

    def replay(self, batch_size):
        minibatch = random.sample(self.memory, batch_size)
        for state, action, reward, next_state, done in minibatch:
            target = reward
            if not done:
                target = reward + self.gamma * np.amax(
                    self.model.predict(next_state, verbose=0)[0]
                )
            target_f = self.model.predict(state, verbose=0)
            target_f[0][action] = target
            self.model.fit(state, target_f, epochs=1, verbose=0)
        if self.epsilon > self.epsilon_min:
            self.epsilon *= self.epsilon_decay


agent = DQNAgent(2, 2)
for e in range(3):
    position, total = 0.1, 0.0
    state = np.reshape([position, 0.0], [1, 2])
    for time in range(12):
        action = agent.act(state)
        position += 0.3 if action else -0.3
        done = abs(position) > 1
        reward = -1.0 if done else 0.2
        next_state = np.reshape([position, time / 10], [1, 2])
        agent.memorize(state, action, reward, next_state, done)
        state = next_state
        total += reward
        if done:
            break
    if len(agent.memory) > 4:
        agent.replay(4)
    print(f"episode {e}, score {total:.2f}, e {agent.epsilon:.2f}")
agent.model.save_weights("dqn.weights.h5")
