"""The compiler's processes end when it has done its work."""

from torch._inductor import async_compile, config

from compiler_processes import compiler_processes
from omni_jev_worker.network import compiled
from started_engine import LONG


def test_its_processes_are_ended_and_it_can_start_others() -> None:
    with config.patch(compile_threads=2):
        for _ in range(2):
            async_compile.AsyncCompile.process_pool()
            assert compiler_processes()
            compiled.end_processes().join(LONG)
            assert not compiler_processes()


def test_it_starts_few_however_many_processors_there_are() -> None:
    with config.patch(compile_threads=32):
        compiled.compile_regions()
        assert config.compile_threads == 8
