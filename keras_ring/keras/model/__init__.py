"""Keeps the state of a model equal on all ranks, as far as it has to be.

variables         broadcasts of variables
seeds             different random numbers on each rank, from one seed
model_broadcast   the broadcast of the state of a model
model_optimizers  the optimizers that train a model
model_state       the variables that training continues from
adapted_layers    layers with learned state outside of their weights
metric_state      checks that the state of a metric is a sum
consistency       checks that weights are equal on all ranks
sync_batch_normalization, synchronized_normalization, moving_statistics
batch normalization over all ranks
session_hook      the same for sessions of TensorFlow 1
"""
