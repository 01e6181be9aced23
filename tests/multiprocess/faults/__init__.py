"""Faults of a rank, at every moment of its life, and what the others see."""
