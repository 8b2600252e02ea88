"""Replay, and learning from it."""
