"""What becomes of Keras' own `fit` and callbacks on several ranks.

one_writer        callbacks that write files do so on one rank
own_files         no two ranks cache their data in one file
terminate_on_nan  a loss of any rank ends the training of all
skipped_batches   batches that are only read, to come to where it had been
observed_fit      steps, epochs and evaluations are counted and recorded
input_wait        how long a program waits for its input pipeline
watching          each `fit` is measured, and shown by one bar for all ranks
watch             what one has done on this rank
figures           what ranks tell each other of it
summary           what is said of it when it has ended
"""
