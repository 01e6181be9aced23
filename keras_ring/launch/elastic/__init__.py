"""Elastic jobs, as the launcher sees them: who their members are."""
