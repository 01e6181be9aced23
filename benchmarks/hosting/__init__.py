"""The parts of `hosts.py`: where jobs run, what runs, what is hoped for."""
