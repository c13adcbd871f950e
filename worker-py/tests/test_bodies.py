"""Bodies that are large or compressed wait for one thread: not for ever, and not for nobody."""

import asyncio
import gzip
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from test_app import ASKED, Reply, Served, good


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


class BlockedParser:
    """Keeps the parsing thread busy until it is let go."""

    def __init__(self, served: Served) -> None:
        self.entered = threading.Event()
        self.parsed = 0
        self._go_on = threading.Event()
        parser = served.app._parser
        self._parse = parser._parse
        cast("Any", parser)._parse = self._wait

    def let_go(self) -> None:
        self._go_on.set()

    def _wait(self, body: bytes, codings: Sequence[str], check: Any) -> Any:
        self.parsed += 1
        self.entered.set()
        assert self._go_on.wait(60)
        return self._parse(body, codings, check)


def test_a_body_whose_client_left_before_its_turn_is_not_parsed(served: Served) -> None:
    blocked = BlockedParser(served)
    body = gzip.compress(json.dumps(ASKED).encode())

    async def leave() -> None:
        headers = {"content-encoding": "gzip"}
        first = asyncio.create_task(served.send(body=body, headers=headers))
        await asyncio.to_thread(blocked.entered.wait, 60)
        gone = asyncio.Event()
        second = asyncio.create_task(served.send(body=body, headers=headers, gone=gone))
        while served.app._parser._waiting <= 64 * 1024:
            await asyncio.sleep(0)
        gone.set()
        assert (await second).status == 0
        blocked.let_go()
        assert (await served.answering(good, _the(first))).status == 200

    asyncio.run(leave())
    assert blocked.parsed == 1


async def _the(reply: "asyncio.Task[Reply]") -> Reply:
    return await reply


def test_more_than_may_wait_to_be_parsed_is_a_503_and_small_bodies_are_still_read(
    served: Served,
) -> None:
    blocked = BlockedParser(served)
    large = json.dumps({**ASKED, "extra": " " * 2_000_000}).encode()

    async def flood() -> None:
        asking = [asyncio.create_task(served.send(body=large)) for _ in range(12)]
        done, waiting = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        blocked.let_go()
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    asyncio.run(flood())
    assert blocked.parsed <= 8
    assert served.app._parser._waiting == 0
