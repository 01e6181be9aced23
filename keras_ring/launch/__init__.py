"""Starts the ranks of a job and ends them together, on one host or several.

This package does not import TensorFlow, so the command line answers at once and
a launcher needs little memory beside its ranks.

    request        the request of the user, unchecked
    plan, hosts,   the checked request, without side effects
    settings
    standard_input the standard input of the command, for all ranks
    python_command the program and options of a Python command
    sharing        the number of threads and the cores of a rank
    directories    directories that may not exist
    open_files     the limit of open files
    job            the directory, key, listening socket and watchdog of a job
    auto_hook      the start of `--auto` in Python programs of ranks
    rank_process   one started rank
    child_process  the start and the end of a process
    child          the small program that becomes the rank
    job_processes  the processes of a job, and its watchdog
    supervisor     the event loop over the ranks of this host
    patience       time limits of the launcher
    ending         the signals that end ranks, and their times
    output         lines from pipes, and a writer that never blocks
    output_files   the files of `--output-dir`
    lost_files     messages about files that could not be written
    screen         the ranks' output as it is shown, with prefixes
    line_collapsing  lines that ranks print alike
    tensorflow_lines  lines that TensorFlow's C++ code prints
    summary        messages about the rank that failed first
    remote_shell   the command that reaches another host
    agent          the ranks of one host, for a launcher elsewhere
    agent_network  connections between the agent's host and others
    host_facts     facts of the agent's host
    frames         messages between launcher and agents
    agent_connection, agent_loop  the launcher's end of the connections
    running_clock  time in which this process was not stopped
    strangers      limits of connections before they are authenticated
    preflight      checks of the hosts before a job starts
    cluster        the ranks of all hosts
    function_job   `kr.run`: a function on several ranks
    function_rank  the program of such a rank
"""
