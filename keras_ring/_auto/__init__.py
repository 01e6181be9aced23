"""Trains a program that was written for one process, as it is, on all ranks.

activation      begins it: the job, seeds, everything below
settings        what was asked for
script          where in the program the caller is
said            what is said of what is done
passes          which pass over data runs: of `fit`, `evaluate` or `predict`
training        `fit`: who trains, from which state
single_batches  `train_on_batch`
own_steps       functions of a loop of the program's own
own_step_call   one of them, on parts of its batches
update_search   the optimizers and variables of such a function
own_step_check  whether it is, on parts, what it is on the whole
own_step_ways   how what it does on parts makes what it does on the whole
ways            how values of parts make that of the whole
living_metrics  metrics that no model has
batches         which part of a batch, or which batches, a rank has
same_data       whether the ranks have read the same
occasions       when ranks compare, of steps that are in no epoch
step_check      whether steps on parts make the step on the whole
step_comparison  a step on a whole batch and on parts of it
kept_state      what steps keep and do not train: one for all ranks
state_ways      how what ranks assign makes what one process assigns
state_combining  where ranks put together what they assign
state_advice    what is said of what does not come together
assignments     what is assigned to variables, before it is
recorded_state  what one step assigns, which leaves no trace
apart           how gradients of parts differ from those of the whole
results         metrics and predictions of all ranks
once            what rank 0 does for all, and the others wait for
files           models, which one process would write once
cache_files     files that datasets are cached in
paths           files and directories that the program makes and removes
tensorflow_files  what TensorFlow writes
callbacks_outside  callbacks that rank 0 runs, and the others follow
outside         which callbacks these are
refusals        what cannot be done exactly, and what to write instead
"""
