"""Engines: what else starts processes, and how these become ranks of a job.

An engine is one class, or one row of a table. It reads the size and the
rank of a process among those that were started together, and connects them if
it has the means. This package does not import TensorFlow.

process_identity  the identity of a process, and what an engine is
variables      engines that have a variable for each number
kubernetes     Indexed Jobs, and systems that are built on them
tf_config      clusters that are described in `TF_CONFIG`
mpi            MPI, through mpi4py
slurm          srun
known          all of them, in the order in which they are asked
invitations    the address of rank 0 and the key of the job, for other ranks
job_key        the key of a job that an engine does not hand out
rank_settings  the settings that `init()` derives from all of this
"""
