"""The `keras-ring` command and its verbs, which call other packages.

cli              the command line, and its verbs
parser           a parser that says what a mistyped word may have meant
check            checks whether a job can run on this host
doctor           finds the rank of a job that diverged from the others
flight_log       reads the records of the ranks' flight recorders
template         files that start a job in another way, from templates/
bench_arguments  the arguments of `keras-ring bench`
"""
