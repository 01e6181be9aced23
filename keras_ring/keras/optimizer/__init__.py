"""Reduces the gradients of all ranks before an optimizer uses them.

reduction         reductions of lists of dense and sparse gradients
optimizer         DistributedOptimizer, for all families of optimizers
mixin             the class that an optimizer changes to
keras3_optimizer, keras2_optimizer, v1_optimizer  the families
tape              DistributedGradientTape
tape_marks        records of the gradients that a tape has reduced
reduction_guard   refuses updates by gradients that were not reduced
local_updates     allows updates of single ranks
initial_values    detects ranks that begin from different values
divergence        detects ranks whose values diverge later
optimizer_state   the variables of an optimizer that ranks share
local_variables   variables that each rank trains on its own
weighted_losses   means over the whole batch if ranks hold unequal parts
whole_batch       steps on parts of a batch, equal to one on the whole batch
whole_rows        the rows of all ranks, in a step on parts of a batch
schedules         learning rate schedules
momentum_correction  scales momentum when the learning rate changes
trained_by        the ranks that train a model together
"""
