"""Observes running jobs from outside, by the status pages of their ranks.

Each rank updates a page of memory that is mapped to a file. Other processes of
the same user may read it at any time, which costs the rank nothing. This
package is loaded by the observing programs, and needs neither TensorFlow nor
NumPy.

    process      state, memory and ancestors of a process
    directory    the directory of the pages, and checks of its permissions
    pages        reads a page
    jobs         finds jobs and reads the pages of their ranks, on all hosts
    view         computes the state and the rates of a job from two readings
    waiting      explains which ranks wait for which, and why
    words        names of causes, activities and ranks
    record       a view as a JSON object
    screen       a view on a terminal, by rich
    metrics      the pages as Prometheus metrics

Two packages in it need NumPy, and look at jobs that may have ended:

    timeline     reads timelines and writes them for viewers
    report       analyses a timeline and makes a page of it
"""
