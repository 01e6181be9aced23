"""This process and its job, without collectives and without Keras.

native        finds, loads and checks the native libraries
core.cc       the runtime's API for Python, `keras_ring._core`
topology      ranks and sizes of this process and its job
process_sets  subsets of the ranks of a job
start_checks  environment variables without effect
arena         tensors in memory that the other ranks of the host can read
logs          forwards the runtime's log lines to `absl.logging`
caught        the exception that a program has caught before it ended
op_errors     errors of compiled steps with the cause first
"""
