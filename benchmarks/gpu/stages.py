"""What is measured of one server, stage by stage; one that fails does not end the others."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.gpu import load, machine
from benchmarks.gpu.connection import Address, Connection, post
from benchmarks.gpu.outcome import Outcome
from benchmarks.gpu.plan import CLIENTS, FEWEST, Effort, Plan
from benchmarks.gpu.progress import Progress
from benchmarks.gpu.reference import Answers
from benchmarks.gpu.servers import Server
from benchmarks.gpu.table import NOT_RUN, Figure
from benchmarks.gpu.workload import Item
from benchmarks.percentiles import percentile

Measured = Mapping[str, Figure]

_LAST_ANSWERS_S = 10.0
"""For clients' last answers, which count no more for the rate."""


@dataclass
class Stages:
    """Measures one server; the figures are by the table's rows."""

    side: str
    plan: Plan
    effort: Effort
    progress: Progress
    only: Sequence[str]
    figures: dict[str, Figure]
    """Begins with all rows, as not run."""
    answers: dict[str, list[Answers]] = field(default_factory=dict)
    """To the plan's mixed requests: `alone` and `together`."""
    firsts: list[float] = field(default_factory=list)
    """Seconds of the first request after each start."""
    notes: list[str] = field(default_factory=list)

    def attempt(self, stage: str, rows: Sequence[str], measure: Callable[[], Measured]) -> None:
        """Run a stage, and put what it gives, or why it failed, into the rows."""
        if stage not in self.only:
            return
        if self.progress.over:
            self.figures |= dict.fromkeys(rows, f"{NOT_RUN}: the run's time is over")
            return
        begun = time.monotonic()
        try:
            got = measure()
        except Exception as error:
            reason = f"failed: {type(error).__name__}: {error}"
            got = dict.fromkeys(rows, reason)
            self.progress.record(self.side, stage, failed=reason)
        self.figures |= got
        told = ", ".join(f"{row} {_short(figure)}" for row, figure in got.items())
        self.progress.say(f"{self.side}: {stage} in {time.monotonic() - begun:.1f} s: {told}")

    def first(self, server: Server) -> None:
        """Time the first request after a start."""
        if "first" not in self.only:
            return
        item = self.plan.first[len(self.firsts)]
        outcome = load.one_client(_address(server), [item], 0, 60.0)
        self.progress.record(self.side, "first", **outcome.record())
        problem = outcome.problem()
        if problem is not None:
            self.figures["first"] = problem
        self.firsts.append(outcome.times[0] if outcome.times else float("inf"))

    def compare_first(self) -> None:
        """Set the worst first request against the warm p50."""
        warm = self.figures.get("1x64.p50")
        if not self.firsts or not str(self.figures["first"]).startswith(NOT_RUN):
            return
        if isinstance(warm, float):
            self.figures["first"] = max(self.firsts) * 1000 / warm
        else:
            self.figures["first"] = f"{NOT_RUN}: there is no p50 of 1x64 to compare with"

    def sequential(self, server: Server) -> None:
        """Each row of one client."""
        for key, items in self.plan.sequential.items():
            rows = (f"{key}.p50", f"{key}.spread")
            self.attempt(key, rows, partial(self._one, _address(server), key, items))

    def direct(self, address: Callable[[], Address]) -> None:
        """One client at the worker itself, without the frontend."""
        self.attempt(
            "direct",
            ("direct.p50",),
            lambda: {"direct.p50": self._one(address(), "direct", self.plan.direct)["direct.p50"]},
        )

    def _one(self, address: Address, key: str, items: Sequence[Item]) -> Measured:
        effort = self.effort
        outcome = load.one_client(
            address, items[: effort.warm + effort.requests], effort.warm, effort.sequential_s
        )
        self.progress.record(self.side, key, **outcome.record())
        problem = outcome.problem()
        if problem is not None:
            return dict.fromkeys((f"{key}.p50", f"{key}.spread"), problem)
        if len(outcome.times) < min(FEWEST, effort.requests):
            self.notes.append(f"{self.side}, {key}: only {len(outcome.times)} requests were timed")
        p50 = outcome.milliseconds(0.5)
        return {f"{key}.p50": p50, f"{key}.spread": outcome.milliseconds(0.99) / p50}

    def throughput(self, server: Server) -> None:
        """Many clients that ask one request after the other."""

        def measure() -> Measured:
            outcome = load.busy_clients(
                _address(server),
                self.plan.throughput,
                CLIENTS,
                self.effort.closed_s,
                grace=_LAST_ANSWERS_S,
            )
            self._tell_generator("throughput", outcome)
            problem = outcome.problem()
            if problem is not None:
                return {"throughput": problem, "throughput.p50": problem}
            return {"throughput": outcome.rate, "throughput.p50": outcome.milliseconds(0.5)}

        self.attempt("throughput", ("throughput", "throughput.p50"), measure)

    def arrivals(self, server: Server) -> None:
        """Requests that come at random moments, whether or not those before are answered."""
        rows = ("poisson.p50", "poisson.p99")

        def measure() -> Measured:
            count = bisect_left(self.plan.moments, self.effort.arrivals_s)
            outcome = load.arrivals(
                _address(server),
                self.plan.arrivals[:count],
                self.plan.moments[:count],
                grace=self.effort.grace_s,
            )
            self._tell_generator("poisson", outcome)
            problem = outcome.problem()
            if problem is not None:
                return dict.fromkeys(rows, problem)
            return {rows[0]: outcome.milliseconds(0.5), rows[1]: outcome.milliseconds(0.99)}

        self.attempt("poisson", rows, measure)

    def _tell_generator(self, stage: str, outcome: Outcome) -> None:
        self.progress.record(self.side, stage, **outcome.record())
        shares = outcome.generator
        note = f"{self.side}, {stage}: the generator used {sum(shares):.2f} cores"
        note += f" in {len(shares)} processes, {max(shares):.2f} at most in one"
        if outcome.late:
            late = percentile(outcome.late, 0.99) * 1000
            note += f"; 99 % of requests were sent within {late:.2f} ms of when they were due"
        if outcome.times:
            p50, p99 = outcome.milliseconds(0.5), outcome.milliseconds(0.99)
            note += f"; {len(outcome.times)} answers, p50 {p50:.2f} ms, p99 {p99:.2f} ms"
        self.notes.append(note)

    def parity(self, server: Server, *, together: bool = True) -> None:
        """Ask what is compared later: one by one, and all at once."""

        def measure() -> Measured:
            address = _address(server)
            requests = [post(json.dumps(request).encode()) for request in self.plan.mixed]
            self.answers["alone"] = [_answers(Connection(address), each) for each in requests]
            if together:
                self.answers["together"] = _all_at_once(address, requests)
            for when, answers in self.answers.items():
                self.progress.record(self.side, f"parity {when}", answers=answers)
            return {}

        self.attempt("parity", ("difference", "difference.together", "mismatches"), measure)

    def memory(self, server: Server, *, before: float) -> None:
        """Run every length, and read what is held then; `before` is what the GPU held before."""
        rows = ("memory", "memory.process")

        def measure() -> Measured:
            outcome = load.busy_clients(
                _address(server), self.plan.lengths, 8, 60.0, processes=1, grace=5.0
            )
            self.progress.record(self.side, "memory", **outcome.record())
            problem = outcome.problem()
            if problem is not None:
                return dict.fromkeys(rows, problem)
            held = server.health().get("memory", {}).get("device_bytes", 0)
            shown = f"{NOT_RUN}: no device memory is reported"
            figures: dict[str, Figure] = {"memory": held / machine.GB if held else shown}
            used = machine.gpu_bytes()
            if used is None:
                figures["memory.process"] = f"{NOT_RUN}: no nvidia-smi"
            else:
                count, what = used
                whole = count - before if what == "the GPU" else count
                figures["memory.process"] = whole / machine.GB
                self.notes.append(f"{self.side}: nvidia-smi's memory is that of {what}")
            return figures

        self.attempt("memory", rows, measure)

    def complaints(self, server: Server, *, compiled: bool) -> None:
        """Count what `/health` tells of at the end that should not be."""

        def measure() -> Measured:
            health = server.health()
            self.progress.record(self.side, "health at the end", health=health)
            found = complaints(health, compiled=compiled)
            self.notes += [f"{self.side}, /health: {each}" for each in found]
            return {"complaints": float(len(found))}

        # Whatever else was asked for.
        only, self.only = self.only, ("complaints",)
        self.attempt("complaints", ("complaints",), measure)
        self.only = only


def complaints(health: Mapping[str, Any], *, compiled: bool) -> list[str]:
    """Give what a worker's `/health` tells of that should not be."""
    compile_state = health.get("compile", {})
    fallback = health.get("fallback", {})
    faults = {
        f"status {health.get('status')}": health.get("status") != "ready",
        "the model is on another device than asked": bool(health.get("device_mismatch")),
        "it recompiled after it was ready": bool(compile_state.get("recompiled_after_ready")),
        "compile is not active": compiled and not compile_state.get("active"),
        f"{fallback.get('count')} questions fell back to the CPU": bool(fallback.get("count")),
        f"{fallback.get('splits')} batches were split": bool(fallback.get("splits")),
    }
    return [text for text, true in faults.items() if true]


def _address(server: Server) -> Address:
    address = server.address
    if address is None:
        raise RuntimeError(f"{server.name} does not listen")
    return address


def _short(figure: Figure) -> str:
    return figure if isinstance(figure, str) else f"{figure:.4g}"


def _answers(connection: Connection, request: bytes) -> Answers:
    try:
        reply = connection.exchange(request)
    finally:
        connection.close()
    if reply.status != 200:
        raise RuntimeError(f"status {reply.status}: {reply.body[:300]!r}")
    answers: Answers = json.loads(reply.body)["answers"]
    return answers


def _all_at_once(address: Address, requests: Sequence[bytes]) -> list[Answers]:
    gate = threading.Barrier(len(requests))

    def ask(request: bytes) -> Answers:
        connection = Connection(address)
        gate.wait(timeout=30)
        return _answers(connection, request)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(ask, requests))
