"""Trains a program that was written for one process, unchanged, on all ranks.

activation      start: the job, seeds and all hooks
tensorflow_hooks  all hooks into a program of TensorFlow
portable        the same on any framework, by `fit` alone
settings        settings of `--auto`
script          line of the program that the caller runs in
data_passes     current pass over data, of `fit` or `evaluate`
training        `fit` on all ranks
single_batches  `train_on_batch` on all ranks
custom_steps    steps of training in custom loops
custom_step_call  one such step, on parts of its batches
update_search   optimizers and variables of such a step
custom_step_check  comparison of such a step on parts and on the whole
custom_step_semantics  ways in which its results on parts make that on the whole
row_semantics   ways in which values of parts make that of the whole
metric_registry  metrics that belong to no model
batches         part of a batch, or batches, that a rank has
batch_digests   check that ranks have read the same data
step_check      check that steps on parts make the step on the whole
tolerances      how far such results may be apart
step_comparison  one step on a whole batch and on parts of it
kept_state      state that steps keep without training it, same on all ranks
state_semantics  ways in which values of ranks make that of one process
state_combining  combination of the values that ranks assign in a step
state_advice    errors about state that cannot be combined
assignments     hooks into assignments to variables
recorded_state  assignments of one step, recorded and undone
gradient_difference  differences between gradients of parts and of the whole
results         metrics and predictions of all ranks
once            calls that rank 0 makes for all ranks
files           models and other files that one process would write once
cache_files     files that datasets are cached in
paths           files and directories that the program makes and removes
tensorflow_files  files that TensorFlow writes
callbacks_outside  callbacks that rank 0 runs, and the others follow
outside         detection of these callbacks
refusals        errors for what cannot be done exactly
"""
