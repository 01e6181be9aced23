"""Trains an unchanged program of Keras 3 on any framework.

`--auto` trains more programs on TensorFlow, whose steps and datasets it can
look into. On PyTorch and on JAX it trains models by `fit` and `train_on_batch`,
and refuses what else a program does.

portable_hooks  all hooks below
training        `fit` on all ranks
single_batches  `train_on_batch` on all ranks
parts           step on a part of a batch
own_steps       steps of the program's own, which are tried first
all_rows        losses and metrics that are computed of the rows of all ranks
same_batches    check that ranks have read the same batches
row_check       check that each row is computed by itself
results         metrics, evaluations and predictions of all ranks
random_draws    generator of the framework, in steps and between them
refusals        errors for what cannot be done
"""
