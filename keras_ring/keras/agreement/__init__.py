"""Checks that ranks agree on what they must have in common.

shared_paths   variable paths that are the same on all ranks
difference     values that differ between ranks, found by digests
same_data      comparison of the data that ranks are about to split
cache_files    cache files that several input pipelines would write
file_systems   file systems that hosts share
next_batch     access to the next batch that a model is trained on
same_batch     comparison of the first batches, and their total size
training_end   trainings that end in the same epoch and batch
time_budget    intervals between checks that keep their cost low
"""
