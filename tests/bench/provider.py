"""A provider fast enough not to be the bottleneck: prepared bytes over loopback, in a process of its own.

`python -m tests.bench.provider` prints its port. The last user text says what is answered: `flood N` (N chunks in one write),
`paced N` (one chunk a write, a millisecond apart), anything else five chunks. The time of each request's last byte
(`time.monotonic`, which is one clock for all processes of a machine) goes to standard output, one a line.
"""

from __future__ import annotations

import asyncio
import re
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":'
    b'[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
END = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def answer(writer: asyncio.StreamWriter, text: str) -> None:
    kind, _, count = text.partition(" ")
    writer.write(HEAD)
    if kind == "paced":
        for _ in range(int(count)):
            writer.write(framed(CHUNK))
            await asyncio.sleep(0.001)
        writer.write(framed(END) + b"0\r\n\r\n")
    else:
        number = int(count) if kind == "flood" else 5
        writer.write(b"".join(framed(CHUNK) for _ in range(number)) + framed(END) + b"0\r\n\r\n")
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            print(time.monotonic(), flush=True)
            texts = re.findall(rb'"content":"((?:flood|paced|short)[^"]*)"', body)
            await answer(writer, texts[-1].decode() if texts else "")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
