"""Experiments with prefrl; never imported by the package."""
