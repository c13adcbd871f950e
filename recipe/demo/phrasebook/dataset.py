"""A fixed number of rows, made by worker processes and kept in flat arrays on the device.

Rows of like length form a bucket, and every batch of a bucket has the same shape, so that a step
can be captured once as a CUDA graph and replayed.
"""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedTokenizerFast

from .bank import Bank
from .grammar import Part
from .mix import make_item
from .rows import MAX_LEN, QuickTokenizer, Row, make_row

Batch = dict[str, torch.Tensor]
MOST_OPTIONS = 14
# A place more than 64 (half the attention window) past its row's end would see no token, and some
# CUDA kernels make NaN of a softmax over nothing: buckets are never wider than 32.
BUCKETS = (*range(32, 129, 16), *range(160, MAX_LEN + 1, 32))


def draw_rows(bank: Bank, tokenizer: QuickTokenizer, rng: random.Random, count: int) -> list[Row]:
    """Random rows of the bank's part."""
    rows: list[Row] = []
    while len(rows) < count:
        row = make_row(tokenizer, make_item(bank, rng))
        if row is not None and len(row["markers"]) <= MOST_OPTIONS:
            rows.append(row)
    return rows


@dataclass
class Packed:
    """Rows in flat arrays: what worker processes send, and what a device holds."""

    tokens: npt.NDArray[np.int16]
    lengths: npt.NDArray[np.int64]
    markers: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    qtypes: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def pack(rows: list[Row]) -> Packed:
    """Rows into arrays."""
    markers = np.zeros((len(rows), MOST_OPTIONS), dtype=np.int64)
    for line, row in zip(markers, rows, strict=True):
        line[: len(row["markers"])] = row["markers"]
    return Packed(
        np.concatenate([np.array(row["ids"], dtype=np.int16) for row in rows]),
        np.array([len(row["ids"]) for row in rows]),
        markers,
        np.array([len(row["markers"]) for row in rows]),
        np.array([row["qtype"] for row in rows]),
        np.array([row["label"] for row in rows]),
    )


def _join(parts: list[Packed]) -> Packed:
    names = ("tokens", "lengths", "markers", "counts", "qtypes", "labels")
    return Packed(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


_Job = tuple[PreTrainedTokenizerFast, Part, str, int, float]


def _work(job: _Job) -> Packed:
    tokenizer, part, seed, count, dropout = job
    quick = QuickTokenizer(tokenizer, dropout)
    return pack(draw_rows(Bank(part), quick, random.Random(seed), count))


def make_rows(
    tokenizer: PreTrainedTokenizerFast, part: Part, count: int, seed: int, workers: int
) -> Packed:
    """``count`` rows of a part; every fourth piece of training rows has words cut at random."""
    size = 2000
    jobs: list[_Job] = [
        (
            tokenizer,
            part,
            f"{seed}/{part}/{start}",
            min(size, count - start),
            0.1 if part == "train" and start // size % 4 == 3 else 0.0,
        )
        for start in range(0, count, size)
    ]
    if workers < 2:
        return _join([_work(job) for job in jobs])
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        return _join(pool.map(_work, jobs, chunksize=1))


class Dataset:
    """Packed rows on a device."""

    def __init__(self, packed: Packed, pad_id: int, tokens: int, device: torch.device) -> None:
        self._pad_id = pad_id
        self._tokens = torch.from_numpy(packed.tokens).to(device)
        ends = np.cumsum(packed.lengths)
        self._starts = torch.from_numpy(ends - packed.lengths).to(device)
        self._lengths = torch.from_numpy(packed.lengths).to(device)
        self._markers = torch.from_numpy(packed.markers).to(device)
        self._counts = torch.from_numpy(packed.counts).to(device)
        self._qtypes = torch.from_numpy(packed.qtypes).to(device)
        self._labels = torch.from_numpy(packed.labels).to(device)
        self._kinds = packed.qtypes
        self._buckets: dict[int, npt.NDArray[np.int64]] = {}
        places = np.searchsorted(np.array(BUCKETS), packed.lengths)
        for place, width in enumerate(BUCKETS):
            members = np.flatnonzero(places == place)
            if len(members):
                self._buckets[width] = members
        self._sizes = {width: max(1, tokens // width) for width in self._buckets}
        self.device = device

    def epoch(
        self, rng: np.random.Generator, widest: int, kind: int | None = None
    ) -> list[tuple[int, torch.Tensor]]:
        """(width, row numbers) of full batches up to a width, in random order; of all question
        types or of one."""
        batches: list[tuple[int, torch.Tensor]] = []
        for width, everyone in self._buckets.items():
            size = self._sizes[width]
            members = everyone if kind is None else everyone[self._kinds[everyone] == kind]
            if width > widest or len(members) < size:
                continue
            order = torch.from_numpy(rng.permutation(members)).to(self.device)
            full = len(members) // size * size
            batches += [(width, part) for part in torch.split(order[:full], size)]
        places = rng.permutation(len(batches))
        return [batches[place] for place in places]

    def everything(self) -> list[tuple[int, torch.Tensor]]:
        """(width, row numbers) of batches that hold each row once."""
        return [
            (width, part)
            for width, members in self._buckets.items()
            for part in torch.split(torch.from_numpy(members).to(self.device), self._sizes[width])
        ]

    def gather(self, width: int, rows: torch.Tensor) -> tuple[Batch, torch.Tensor]:
        """The model's input and the labels of some rows, as laya.common.collate_items has them."""
        lengths = self._lengths[rows]
        places = torch.arange(width, device=self.device)[None]
        inside = places < lengths[:, None]
        last = self._tokens.numel() - 1
        at = (self._starts[rows][:, None] + places).clamp(max=last)
        ids = self._tokens[at].long().masked_fill(~inside, self._pad_id)
        options = torch.arange(MOST_OPTIONS, device=self.device)[None]
        batch = {
            "input_ids": ids,
            "attention_mask": inside.long(),
            "marker_pos": self._markers[rows],
            "marker_mask": options < self._counts[rows][:, None],
            "qtype": self._qtypes[rows],
        }
        return batch, self._labels[rows]
