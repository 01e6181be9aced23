"""What the launcher and the ranks share: how one tells the other something.

Standard library only: the launcher loads it, and so does a rank that has only
just begun.

    contract       the environment variables that a rank receives, in one place
    engines        what other launchers tell the processes that they start
    error_file     which exception ended a rank
    error_text     the cause in the text of an error
    cores          how many cores this process may use
"""
