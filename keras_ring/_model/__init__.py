"""A model on all ranks: its state, and what it needs to be one model.

variables         values of variables, shared
seeds             random numbers of each rank, from one seed
model_broadcast   the state of a model on one rank, on all of them
model_optimizers  the optimizers that train a model
model_state       the variables that training continues from
adapted_layers    layers that learn outside of their weights
metric_state      metrics whose state is no sum
consistency       weights that differ between ranks
sync_batch_normalization, synchronized_normalization, moving_statistics
batch normalization over all ranks
session_hook      the same for sessions of TensorFlow 1
"""
