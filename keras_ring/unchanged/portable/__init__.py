"""Trains an unchanged program of Keras 3 on any framework, by `fit`.

`--auto` trains more programs on TensorFlow, whose steps and datasets it can
look into. On PyTorch and on JAX it trains a model by `fit` with the
`train_step` of Keras, and refuses what else a program does.

portable_hooks  all hooks below
training        `fit` on all ranks
parts           step on a part of a batch
all_rows        losses and metrics that are computed of the rows of all ranks
same_batches    check that ranks have read the same batches
row_check       check that each row is computed by itself
results         metrics, evaluations and predictions of all ranks
refusals        errors for what cannot be done
"""
