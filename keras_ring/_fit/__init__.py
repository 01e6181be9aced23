"""What becomes of Keras' own `fit` and callbacks on several ranks.

one_writer        callbacks that write files do so on one rank
terminate_on_nan  a loss of any rank ends the training of all
skipped_batches       batches that are only read, to come to where it had been
"""
