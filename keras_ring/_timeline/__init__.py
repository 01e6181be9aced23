"""Timelines: what each rank of a job did, and when.

The core writes the parts of a timeline, one per rank. Here they are read, and
written as files that other programs show. NumPy, and no TensorFlow.
"""
