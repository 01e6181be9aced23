"""Starts the ranks of a job and ends them together, on one host or several.

Nothing here imports TensorFlow, so the command line answers at once and a
launcher costs little memory beside the ranks it watches.

    request        what the user asks for
    plan, hosts,   pure: the same, checked
    settings
    standard_input what the command is given, for ranks
    python_command what a command says to Python
    sharing        how many threads a rank gets, and which cores
    places         directories that may not be there
    open_files     how many of them a launcher may have
    job            what a job owns: directory, key, listening socket, watchdog
    auto_hook      what has Python programs of ranks begin with `--auto`
    rank_process   one started rank
    child_process  starting a process, and waiting for it
    child          the small program that becomes the rank
    job_processes  finds and kills what a job started; also the watchdog
    supervisor     the event loop that watches the ranks of this host
    patience       how long it waits for them
    ending         which signals they get, and when
    output         lines from pipes, and a writer that never blocks
    output_files   the files of `--output-dir`
    lost_files     files that could not be written, in words
    screen         what of them is shown, and with which prefix
    folding        lines that ranks print alike
    tensorflow_lines  what TensorFlow's C++ prints
    summary        which rank failed first, in words
    remote_shell   how another host is reached
    agent          runs the ranks of one host for a launcher elsewhere
    agent_network  tries how its host and others reach each other
    host_facts     what it says of its host
    frames         what launcher and agents say to each other
    agent_connection, agent_loop  the launcher's end of it
    running_clock  time as far as this process has run
    strangers      what connections may take before they are known
    preflight      whether the hosts of a job fit together
    cluster        the ranks of all hosts
    function_job   `kr.run`: a function on several ranks
    function_rank  what such a rank runs
"""
