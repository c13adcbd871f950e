"""A worker process that this one started, for one checkpoint beside the default.

It is a whole worker, on a Unix socket in a private folder: it has an interpreter and a torch of its
own, so nothing that it does (import, download, load, compile, run) holds up the requests to the
default checkpoint, and its end harms none. It ends when this process does, however that ends.
"""

import json
import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from omni_jev_worker.child_process import ChildProcess

_HEALTH_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child answered."""

    status: int
    body: Any
    retry_after: str | None


class Child(ChildProcess):
    """One process, and the way to ask it. Made and used on the event loop alone."""

    def __init__(self, name: str, command: Sequence[str], socket: Path) -> None:
        """Take the checkpoint's name, and the command that serves it on that socket."""
        super().__init__(name, [*command, "--uds", str(socket)])
        self._socket = socket
        self._token = uuid.uuid4().hex
        self._client: httpx2.AsyncClient | None = None
        self.health: dict[str, Any] = {}
        """The latest body of its `/health`."""

    async def start(self, on_found: Callable[[], None]) -> None:
        """Start the process and wait until it is ready. Raises `NotStarted`.

        ``on_found`` is called once the files of the checkpoint are there.
        """
        await self.launch(self._environment(), on_found=on_found)
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(
                uds=str(self._socket), limits=httpx2.Limits(max_connections=None)
            ),
            base_url="http://checkpoint",
            timeout=None,
            trust_env=False,
        )
        await self.look()

    def _environment(self) -> dict[str, str]:
        # Only this process asks it anything: it needs no key, and none of it is news.
        kept = {k: value for k, value in os.environ.items() if not k.startswith("LAYA_")}
        return kept | {
            "OMNI_JEV_INSTANCE": uuid.uuid4().hex,
            "OMNI_JEV_CONTROL_TOKEN": self._token,
        }

    async def ask(self, body: bytes) -> Answer:
        """Have a request answered, a JSON body of `/v1/systemone`.

        Raises `httpx2.HTTPError` when the process ends meanwhile.
        """
        return await self._post("/v1/systemone", body)

    async def recover_device(self) -> str | None:
        """Return to the device that was lost: none when it is there, else why not."""
        answer = await self._post("/control/recover-device", b"")
        return None if answer.body.get("recovered") else str(answer.body.get("reason"))

    async def _post(self, path: str, body: bytes) -> Answer:
        if self._client is None:
            raise RuntimeError("the process is not ready")
        response = await self._client.post(
            path, content=body, headers={"x-omni-jev-control": self._token}
        )
        return Answer(
            response.status_code, json.loads(response.content), response.headers.get("retry-after")
        )

    async def look(self) -> bool:
        """Read its `/health`, and say whether it answered; if not, what it last said stays."""
        if self._client is None:
            return False
        try:
            response = await self._client.get("/health", timeout=_HEALTH_SECONDS)
            self.health = json.loads(response.content)
        except (httpx2.HTTPError, ValueError):
            return False
        return True

    async def on_end(self) -> None:
        """Close what led to it."""
        if self._client is not None:
            await self._client.aclose()
