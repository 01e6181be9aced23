"""Looks at running jobs from outside, through what their ranks show.

Each rank keeps a page of memory in a file up to date, which other processes of
the same user may read at any time; that costs the rank nothing. Programs that
look load this room, and it needs neither TensorFlow nor NumPy.

    process      whether a process lives, its memory, its ancestors
    directory    where the pages are, and whether they can be trusted
    pages        reads a page
    jobs         finds jobs and reads their ranks, on other hosts, too
    view         two readings -> what there is to say about a job
    waiting      who waits for whom, and for which reason
    words        the reasons, and ranks, in words
    record       the same as an object of JSON
    frame        the same on a terminal, by rich
    metrics      the pages as metrics of Prometheus
"""
