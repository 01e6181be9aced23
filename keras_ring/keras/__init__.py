"""Everything for Keras: the models, optimizers and loops of a program.

scope          the part of a program that runs now
lanes          what differs between Keras 2 and Keras 3
agreement      what ranks must have in common
optimizer      gradients: reduction, optimizers, tape, schedules
model          a model on all ranks
fit            how Keras' own `fit` and callbacks are adapted
data           each rank's part of the data
checkpoint     saves and restores the state of a training
callbacks      Keras callbacks
inference      `evaluate` and `predict`
startup        what begins in a program when it has imported Keras
"""
