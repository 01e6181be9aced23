"""The gradients of all ranks, on their way into an optimizer.

reduction         lists of gradients, dense and sparse, as one set of rules
optimizer         DistributedOptimizer, for all families of optimizers
mixin             the class that an optimizer changes to
keras3_optimizer, keras2_optimizer, v1_optimizer  the families
tape              DistributedGradientTape
tape_marks        which gradients a tape has reduced
reduction_guard   updates that each rank would make alone
local_updates     where updates of one rank are meant
initial_values    ranks that begin from different values
divergence        ranks whose trainings come apart later
optimizer_state   which variables of an optimizer ranks share
local_variables   variables that each rank trains on its own
accumulator       gradients of several passes
weighted_losses   means over the whole batch, where ranks hold unequal parts
whole_batch       parts of a batch that count as that batch
whole_rows        the rows of all ranks, in a step on parts of a batch
momentum_correction  momentum, when the learning rate changes
trained_by        which ranks train a model together
"""
