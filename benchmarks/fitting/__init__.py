"""The parts of `fit_scaling.py`: the models, a rank's work, the figures."""
