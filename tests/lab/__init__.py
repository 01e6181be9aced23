"""Hosts of network namespaces, for tests: see README.md beside this."""
