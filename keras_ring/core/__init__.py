"""A job of processes, without any framework: for programs of NumPy."""
