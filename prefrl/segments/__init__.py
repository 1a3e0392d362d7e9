"""Segments: how they are recorded, stored as bytes, and drawn."""
