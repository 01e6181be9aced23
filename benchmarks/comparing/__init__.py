"""The parts of `compare.py`: what runs, how it is shown."""
