"""Synthetic annotators."""
