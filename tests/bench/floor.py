"""The floor: the least that a durable daemon in Python can do for a turn. Asyncio, msgspec, a plain log file; no tools, no TLS,
no checks, no history. `python -m tests.bench.floor PORT FILE` speaks the same frames as refold, as far as the benches need.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec

from refold_protocol.rpc.framing import Frame, FrameReader, encode_frame


class Floor:
    def __init__(self, port: int, path: str) -> None:
        self.port = port
        self.log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.seq = -1
        self.turn = 0
        self.history: list[dict[str, str]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, message: Any) -> None:
        os.write(1, encode_frame(msgspec.json.encode(message)))

    def tell(self, kind: str, data: Any, *, sync: bool = False) -> None:
        self.seq += 1
        event = {"type": kind, "seq": self.seq, "data": data}
        os.write(self.log, msgspec.json.encode(event) + b"\n")
        if sync:
            os.fdatasync(self.log)
        self.send({"jsonrpc": "2.0", "method": "session/events", "params": {"events": [event]}})

    async def run_turn(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})
        body = msgspec.json.encode({"model": "m", "stream": True, "messages": self.history})
        self.tell("request/sent", len(body), sync=True)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        said: list[str] = []
        rest = b""
        while data := await reader.read(65_536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    delta = msgspec.json.decode(line[6:])["choices"][0]["delta"].get("content")
                    if delta:
                        said.append(delta)
                        self.tell("assistant/chunk", delta)
            if rest.startswith(b"0\r") or b"[DONE]" in data:
                break
        writer.close()
        self.history.append({"role": "assistant", "content": "".join(said)})
        self.tell("turn/end", {"turn": self.turn}, sync=True)

    def take(self, message: Any) -> None:
        result: Any = {}
        match message.get("method"):
            case "session/open":
                result = {"session": "s"}
            case "event/subscribe":
                result = {"subscription": 1}
            case "turn/start":
                self.turn += 1
                os.fdatasync(self.log)
                result = {"turn": self.turn}
                task = asyncio.create_task(self.run_turn(message["params"]["content"][0]["text"]))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            case _:
                pass
        if "id" in message:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})


async def main() -> None:
    floor, frames = Floor(int(sys.argv[1]), sys.argv[2]), FrameReader()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while data := await reader.read(65_536):
        for event in frames.feed(data):
            if isinstance(event, Frame):
                floor.take(msgspec.json.decode(event.body))


if __name__ == "__main__":
    asyncio.run(main())
