"""The tests that hold for every checkpoint, against a published one, where it can be had.

    cargo xtask test --contract english [--device mps] [-- WORKER FLAGS]

The checkpoint comes from the hub or its cache. Exits with 0 when all passed, 1 when something
failed, and 75 when nothing was run: without the checkpoint or the device there is nothing to say.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import pytest

from omni_jev_worker import hub
from omni_jev_worker.checkpoints import HUB_FOLDERS
from omni_jev_worker.exits import Refusal
from tests.harness.subject import Subject

FILES = ("tests/test_generated_requests.py", "tests/test_conformance.py", "tests/test_openapi.py")
# As sysexits.h has it: perhaps another time, or elsewhere.
PASSED, FAILED, NOT_RUN = 0, 1, 75


def find(name: str, device: str, flags: Sequence[str], requests: int) -> Subject:
    """Find what the tests need. Raises `Refusal` that says why they cannot run."""
    found = hub.get(name, None, os.environ)
    # Last, since it imports torch.
    from omni_jev_worker import model

    if not model.available(device):
        raise Refusal(NOT_RUN, f"torch finds no {device} on this machine")
    return Subject(name, str(found.folder), device, tuple(flags), requests)


def main(argv: Sequence[str]) -> int:
    """Run the tests; give the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", choices=sorted(HUB_FOLDERS))
    parser.add_argument("--device", choices=("cpu", "mps", "cuda"), default="cpu")
    parser.add_argument("--requests", type=int, default=300, help="generated ones to compare")
    parser.add_argument("--tests", nargs="+", default=FILES, metavar="FILE")
    # By hand, since argparse does not take a rest after a list.
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:end])
    try:
        subject = find(options.model, options.device, argv[end + 1 :], options.requests)
    except Refusal as refusal:
        print(f"not run: {refusal}")
        return NOT_RUN
    subject.publish()
    return FAILED if pytest.main(["-q", *options.tests]) else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
