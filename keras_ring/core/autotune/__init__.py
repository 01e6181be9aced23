"""Tunes a job while it trains: rank 0 measures, proposes and decides.

search_space  what can be tuned, and on which scale it is searched
samples     how fast the job is, from what the runtime counts
proposals   which setting to try next: the optimiser
verdict     whether a setting is faster than the default
tuning      from the first sample to the last: a state machine without clocks
log_file    the samples of a search, as CSV
tuning_cache  tuned settings, cached for the next job of the same kind
worker      the thread that does all this
"""
