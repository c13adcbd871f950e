"""The omni-jev worker: a small HTTP server that answers typed decisions with Laya.

Nothing is imported here, so that the first line of ``__main__`` runs as early as it can.
"""

__version__ = "0.1.0"
