"""This process and its job. Knows no collective and no Keras.

native        the native libraries: found, loaded, checked
core.cc       the runtime's API for Python, `keras_ring._core`
topology      this rank's place in its job
process_sets  some of the ranks of a job
start_checks  what `init()` looks at before it starts
arena         tensors where the other ranks of the host can read them
logs          the runtime's log lines, on their way to `absl.logging`
caught        which exception a program has caught before it ended
op_errors     the cause first in the errors of compiled steps
"""
