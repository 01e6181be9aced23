"""The protocol between the launcher and the ranks, and code that both use.

The launcher imports this package, and so does a rank at its start. So it
imports nothing that takes long.

    contract       the names of the environment variables of a rank
    interfaces     the network addresses of this host
    standard_streams  descriptors 0, 1 and 2, if they are closed
    time_limits    the time limits of the launcher
    error_file     the file with the exception that ended a rank
    error_text     the cause in the text of an error
    cores          the number of cores that this process may use
    frameworks     the frameworks that keras-ring bench measures
    processors     the processors of a host, and their division among ranks
"""
