"""What ranks must have in common, and who says so if they have not.

shared_paths   under which paths ranks know their variables
difference     values that differ between ranks, by digests
same_data      data that each rank splits by itself
cache_files    files that several ranks would write, of their input pipelines
file_systems   which file system hosts share
next_batch     looks at what a model is trained on next
same_batch     the first batch: how large it is of all ranks
training_end   trainings that end in the same epoch and batch
time_budget    how often to compare, so that it costs little
"""
