"""Engines: what else starts processes, and how these become ranks of a job.

An engine is one class, or one row of a table. It says which place a process
has among those that were started together, and where it can, it brings them
together. Knows no TensorFlow.

place          the place of a process, and what an engine is
variables      engines that have a variable for each number
kubernetes     Indexed Jobs, and what is made of them
tf_config      whoever describes a cluster in `TF_CONFIG`
mpi            MPI, through mpi4py
slurm          srun
known          all of them, in the order in which they are asked
meeting        where rank 0 is, and the key, for the others
job_key        the key of a job that an engine does not hand out
rank_settings  what `init()` makes of it all
"""
