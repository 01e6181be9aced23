"""Timelines: records of the activities of each rank of a job.

The core writes the parts of a timeline, one per rank. This package reads them
and writes files that other programs show. It needs NumPy, but not TensorFlow.
"""
