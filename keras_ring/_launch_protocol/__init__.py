"""What the launcher and the ranks share: how one tells the other something.

The launcher loads it, and so does a rank that has only just begun: nothing
that takes long to import.

    contract       the environment variables that a rank receives, in one place
    interfaces     the network addresses of this host
    standard_streams  descriptors 0, 1 and 2, where they are closed
    time_limits    how long the launcher waits
    error_file     which exception ended a rank
    error_text     the cause in the text of an error
    cores          how many cores this process may use
    processors     which of them are near each other, and how ranks share them
"""
