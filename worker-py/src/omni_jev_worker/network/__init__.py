"""Laya's network over one list of tokens, in this worker's own order of work.

The weights and the arithmetic are laya's; what differs is when and where it is done, so that a
pass can run unpadded, in half precision, compiled, and as one graph of a GPU. It imports nothing
of laya: `parts` takes a laya model apart, and whoever uses the network compares its answers with
laya's own before it serves any.
"""
