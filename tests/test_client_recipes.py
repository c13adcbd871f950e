"""`recipe/clients.md`, followed as it stands: its programs are run with the published clients."""

import pytest

from tests.harness.client_programs import INSTALLED
from tests.harness.follower import Follower
from tests.harness.recipe_page import blocks_of

PAGE = "recipe/clients.md"
BLOCKS = blocks_of(PAGE)


@pytest.mark.skipif(
    not INSTALLED, reason="the clients are not installed: run `cargo xtask setup --dev`"
)
def test_every_client_of_the_page_is_answered() -> None:
    with Follower() as follower:
        said = {block.name: follower.follow(block) for block in BLOCKS if block.can_run}
    programs = [block for block in BLOCKS if block.language != "sh"]
    assert len(programs) == 5
    for block in programs:
        # The first thing that each prints is the probability of the refund.
        assert 0.5 < float(said[block.name].split()[0]) <= 1, block.name
