"""Deep deterministic policy gradients, as the example of keras.io."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(5)
num_states, num_actions = 2, 1
upper_bound, lower_bound = 1.0, -1.0
FLOAT = keras.config.floatx()


class Spring:
    def reset(self):
        self.x = np.random.uniform(-1, 1, size=2)
        return self.x

    def step(self, action):
        self.x = 0.9 * self.x + 0.1 * np.array([action[0], self.x[0]])
        return self.x, -float(np.square(self.x).sum())


class Buffer:
    def __init__(self, buffer_capacity=100000, batch_size=64):
        self.buffer_capacity = buffer_capacity
        self.batch_size = batch_size
        self.buffer_counter = 0
        self.state_buffer = np.zeros((buffer_capacity, num_states))
        self.action_buffer = np.zeros((buffer_capacity, num_actions))
        self.reward_buffer = np.zeros((buffer_capacity, 1))
        self.next_state_buffer = np.zeros((buffer_capacity, num_states))

    def record(self, obs_tuple):
        index = self.buffer_counter % self.buffer_capacity
        self.state_buffer[index] = obs_tuple[0]
        self.action_buffer[index] = obs_tuple[1]
        self.reward_buffer[index] = obs_tuple[2]
        self.next_state_buffer[index] = obs_tuple[3]
        self.buffer_counter += 1

    @tf.function
    def update(self, state_batch, action_batch, reward_batch, next_state_batch):
        with tf.GradientTape() as tape:
            target_actions = target_actor(next_state_batch, training=True)
            y = reward_batch + gamma * target_critic(
                [next_state_batch, target_actions], training=True
            )
            critic_value = critic_model(
                [state_batch, action_batch], training=True
            )
            critic_loss = keras.ops.mean(keras.ops.square(y - critic_value))
        critic_grad = tape.gradient(
            critic_loss, critic_model.trainable_variables
        )
        critic_optimizer.apply_gradients(
            zip(critic_grad, critic_model.trainable_variables)
        )
        with tf.GradientTape() as tape:
            actions = actor_model(state_batch, training=True)
            critic_value = critic_model([state_batch, actions], training=True)
            actor_loss = -keras.ops.mean(critic_value)
        actor_grad = tape.gradient(actor_loss, actor_model.trainable_variables)
        actor_optimizer.apply_gradients(
            zip(actor_grad, actor_model.trainable_variables)
        )

    def learn(self):
        record_range = min(self.buffer_counter, self.buffer_capacity)
        batch_indices = np.random.choice(record_range, self.batch_size)
        state_batch = keras.ops.convert_to_tensor(
            self.state_buffer[batch_indices]
        )
        action_batch = keras.ops.convert_to_tensor(
            self.action_buffer[batch_indices]
        )
        reward_batch = keras.ops.convert_to_tensor(
            self.reward_buffer[batch_indices]
        )
        reward_batch = keras.ops.cast(reward_batch, dtype=FLOAT)
        next_state_batch = keras.ops.convert_to_tensor(
            self.next_state_buffer[batch_indices]
        )
        self.update(state_batch, action_batch, reward_batch, next_state_batch)


def update_target(target, original, tau):
    target_weights = target.get_weights()
    original_weights = original.get_weights()
    for i in range(len(target_weights)):
        target_weights[i] = original_weights[i] * tau + target_weights[i] * (
            1 - tau
        )
    target.set_weights(target_weights)


def get_actor():
    last_init = keras.initializers.RandomUniform(minval=-0.03, maxval=0.03)
    inputs = layers.Input(shape=(num_states,))
    out = layers.Dense(16, activation="relu")(inputs)
    outputs = layers.Dense(1, activation="tanh", kernel_initializer=last_init)(
        out
    )
    return keras.Model(inputs, outputs * upper_bound)


def get_critic():
    state_input = layers.Input(shape=(num_states,))
    state_out = layers.Dense(8, activation="relu")(state_input)
    action_input = layers.Input(shape=(num_actions,))
    action_out = layers.Dense(8, activation="relu")(action_input)
    concat = layers.Concatenate()([state_out, action_out])
    outputs = layers.Dense(1)(layers.Dense(16, activation="relu")(concat))
    return keras.Model([state_input, action_input], outputs)


def policy(state):
    sampled_actions = keras.ops.squeeze(actor_model(state))
    sampled = sampled_actions.numpy() + np.random.normal(0, 0.2)
    return [np.squeeze(np.clip(sampled, lower_bound, upper_bound))]


actor_model, critic_model = get_actor(), get_critic()
target_actor, target_critic = get_actor(), get_critic()
target_actor.set_weights(actor_model.get_weights())
target_critic.set_weights(critic_model.get_weights())
critic_optimizer = keras.optimizers.Adam(0.002)
actor_optimizer = keras.optimizers.Adam(0.001)
gamma, tau = 0.99, 0.005
buffer = Buffer(500, 32)
env = Spring()
for ep in range(3):
    prev_state, episodic_reward = env.reset(), 0
    for _ in range(15):
        tf_prev_state = keras.ops.expand_dims(
            keras.ops.convert_to_tensor(prev_state), 0
        )
        action = policy(tf_prev_state)
        state, reward = env.step(action)
        buffer.record((prev_state, action, reward, state))
        episodic_reward += reward
        buffer.learn()
        update_target(target_actor, actor_model, tau)
        update_target(target_critic, critic_model, tau)
        prev_state = state
    print(f"Episode * {ep} * Avg Reward is ==> {episodic_reward:.6f}")
actor_model.save_weights("actor.weights.h5")
critic_model.save_weights("critic.weights.h5")
