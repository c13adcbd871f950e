"""What can run a checkpoint's network: torch, or another library with an artifact made for it.

A checkpoint is tokenized and its numbers are decoded in one way, whatever runs in between.
"""
