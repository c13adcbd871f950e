"""The command line of ``artifacts``, for what needs no checkpoint."""

import argparse
import sys
from collections.abc import Mapping, Sequence

from omni_jev_worker import caches, flag_values
from omni_jev_worker.parser import Parser


def parse(words: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read an action and its flags. Raises `Refusal` for a wrong one."""
    parser = Parser(
        prog="omni_jev_worker artifacts",
        description="What is made of a checkpoint for --engine: built, listed, checked, moved.",
        epilog="build and warm take the worker's own flags: artifacts build --model demo "
        "--engine onnx. Exit codes: 0, 64 a bad flag, 78 what cannot be done, with the reason.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    shared = Parser(add_help=False, allow_abbrev=False)
    shared.add_argument(
        "--artifacts",
        type=flag_values.text,
        metavar="FOLDER",
        default=caches.artifacts_folder(environment, sys.platform),
        help="where they are (default: the user's cache folder)",
    )

    def action(name: str, help_text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=help_text, parents=[shared], allow_abbrev=False)

    actions.add_parser("build", help="make one that is not there; with the worker's flags")
    action("list", "name those that are there")
    one = action("verify", "check their hashes and graphs, and set corrupt ones aside")
    one.add_argument("names", nargs="*", metavar="NAME", help="as list has it (default: all)")
    actions.add_parser("warm", help="make, prove and run one; with the worker's flags")
    one = action("prune", "remove what is left over or set aside")
    one.add_argument(
        "--unused-days",
        type=flag_values.count,
        metavar="N",
        help="and those that no worker has used for so many days",
    )
    one = action("export", "write one to a file")
    one.add_argument("name", metavar="NAME")
    one.add_argument("file", metavar="FILE")
    one = action("import", "publish the one in a file, after every check")
    one.add_argument("file", metavar="FILE")
    one = action("fetch", "the same with a file from elsewhere, at a pinned revision")
    one.add_argument("source", metavar="URL|REPOSITORY", help="https://…, or a hub repository")
    one.add_argument("--sha256", help="of the file; an address needs it")
    one.add_argument("--revision", metavar="COMMIT", help="of the repository, 40 digits")
    one.add_argument("--file", metavar="NAME", help="in the repository")
    return parser.parse_args(words)
