"""Changes to Keras' own `fit` and callbacks for several ranks.

one_writer        callbacks that write files on one rank alone
own_files         check that no two ranks cache their data in one file
terminate_on_nan  end of the training of all ranks at a bad loss of any
skipped_batches   batches that a resumed `fit` reads without training on them
observed_fit      counts and records of steps, epochs and evaluations
input_wait        time that a program waits for its input pipeline
watching          measurement of each `fit`, and one bar for all ranks
watch             measurements of one `fit` on this rank
figures           measurements that ranks exchange
summary           lines about a `fit` that has ended
"""
