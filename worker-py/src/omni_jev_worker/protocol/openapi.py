"""The protocol as an OpenAPI 3.1 page, kept by hand beside this module."""

from functools import cache
from importlib import resources


@cache
def page() -> bytes:
    """Give the page as JSON. It is the same for every dialect and every setting."""
    return resources.files(__package__).joinpath("openapi.json").read_bytes()
