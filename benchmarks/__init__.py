"""Measurements of builds beside other programs: ``python -m benchmarks``."""
