"""Starts the ranks of a job on this host and ends them together.

Nothing here imports TensorFlow (only `check` does, when it is asked for), so
the command line answers at once and a launcher costs little memory beside the
ranks it watches.

    cli            words on the command line -> plan -> exit code
    plan, hosts,   pure: what the user asked for, checked
    settings
    cores, sharing how many threads a rank gets, and which cores
    contract       the environment variables a rank receives, in one place
    job            what a job owns: directory, key, listening socket, guardian
    rank_process   one started rank
    child_process  starting a process, and waiting for it
    child          the small program that becomes the rank
    job_processes  finds and kills what a job started; also the guardian
    supervisor     the event loop that watches the ranks
    output         lines from pipes, and a writer that never blocks
    screen         what of them is shown, and with which prefix
    folding        lines that ranks print alike
    tensorflow_lines  what TensorFlow's C++ prints
    summary        which rank failed first, in words
    error_file     how a rank tells why it died (runs inside the rank)
    error_text     the cause in TensorFlow's text of an error
    engines        what mpirun, srun and others tell their processes
    check          `keras-ring check`
"""
