"""Sampling arithmetic shared by SDK and collector: consistent thresholds, rates, p99, verdicts.

Pure: time and randomness are arguments.
"""
