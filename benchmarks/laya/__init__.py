"""The whole system measured, by programs that each run as `python benchmarks/laya/NAME.py`."""

import sys
from pathlib import Path

# Python's path begins with a program's folder, and `profile` there hides the standard library's.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
