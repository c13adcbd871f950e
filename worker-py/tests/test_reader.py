"""The reading thread: short texts that come alone are read at once, all others in their turn."""

import asyncio
import threading

from omni_jev_worker.reader import Landing, Reader

LONG = 60.0


def where_it_is_read(reader: Reader, *, characters: int | None, alone: bool) -> str:
    read = threading.Event()
    names: list[str] = []

    def work() -> None:
        names.append(threading.current_thread().name)
        read.set()

    reader.read(work, characters=characters, alone=alone)
    assert read.wait(LONG)
    return names[0]


def test_a_short_text_that_comes_alone_is_read_by_whoever_asks() -> None:
    here = threading.current_thread().name
    assert where_it_is_read(Reader(), characters=100, alone=True) == here


def test_a_long_text_or_one_in_company_or_of_unknown_length_is_read_by_the_thread() -> None:
    reader = Reader()
    assert where_it_is_read(reader, characters=100_000, alone=True) == "read"
    assert where_it_is_read(reader, characters=100, alone=False) == "read"
    assert where_it_is_read(reader, characters=None, alone=True) == "read"


def test_nobody_reads_a_short_text_while_a_long_one_is_read() -> None:
    reader = Reader()
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def long() -> None:
        begun.set()
        assert go_on.wait(LONG)
        order.append("long")

    def short() -> None:
        order.append(threading.current_thread().name)
        done.set()

    reader.read(long, characters=100_000, alone=True)
    assert begun.wait(LONG)
    # Returns at once: whoever asks is the event loop.
    reader.read(short, characters=1, alone=True)
    assert order == []
    go_on.set()
    assert done.wait(LONG)
    assert order == ["long", "read"]


def test_futures_that_other_threads_end_come_to_their_end_on_the_loop() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        landing = Landing(loop)
        futures = [loop.create_future() for _ in range(1000)]
        futures[7].cancel()

        def land(part: list["asyncio.Future[None]"]) -> None:
            for future in part:
                landing.land(future)

        threads = [threading.Thread(target=land, args=(futures[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(LONG):
            await asyncio.gather(*futures, return_exceptions=True)
        assert futures[7].cancelled()
        for thread in threads:
            thread.join()

    asyncio.run(run())


def test_a_future_whose_loop_has_ended_harms_no_thread() -> None:
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    Landing(loop).land(future)
    assert not future.done()
