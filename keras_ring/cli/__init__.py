"""The `keras-ring` command and its verbs. What they start is elsewhere.

cli              words on the command line -> plan -> exit code
check            whether a job can run here
doctor           which rank of a job went another way
flight_log       what the flight recorders of ranks have left
template         files that start a job in another way, from templates/
bench_arguments  the words of `keras-ring bench`
"""
