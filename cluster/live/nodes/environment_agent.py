"""A Ray node's agent of environments of variables alone: ``python -I -S environment_agent.py --session-dir=DIR …``.

Before a raylet starts a worker that has an environment, it asks its agent to make that, by HTTP, and gets a context for
the script that starts the worker (:mod:`cluster.live.nodes.setup_worker`). Ray's own agent takes a processor second to
start, since it imports all of Ray, and no host starts before. Variables need nothing made: this agent gives them back.
It keeps nothing, and refuses any other environment.

Request and reply are Protocol Buffers (``runtime_env_agent.proto`` of Ray), of whose fields a few texts are needed.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys

PORT = "runtime_env_agent_port"
CREATE, DELETE = "/get_or_create_runtime_env", "/delete_runtime_env_if_possible"
VARIABLES = "env_vars"
HEADERS_LIMIT, BODY_LIMIT = 100, 1 << 20
LOOK_EVERY_S = 1.0
PATIENCE_S = 10.0
ENVIRONMENT, STATUS, ERROR, CONTEXT = 1, 1, 2, 3
"""Numbers of fields: of a request, and of its reply."""
FAILED = 1
TEXT = 2
"""The wire type of texts."""


def reply_to(path: str, request: bytes) -> bytes | None:
    """The reply to a request; ``None`` if the agent does not know the path. Raises :class:`ValueError`."""
    if path == DELETE:
        return b""  # all went well
    if path != CREATE:
        return None
    environment = json.loads(_texts(request).get(ENVIRONMENT, b"{}") or b"{}")
    others = sorted(environment.keys() - {VARIABLES})
    if others:
        return bytes((STATUS << 3, FAILED)) + _text(ERROR, f"this testnet's Ray sets variables alone, no {others}")
    return _text(CONTEXT, json.dumps({VARIABLES: environment.get(VARIABLES, {})}))


def _texts(message: bytes) -> dict[int, bytes]:
    """The texts of a message, by field. Raises :class:`ValueError` if it has fields of other types, or is cut off."""
    found, place = {}, 0
    while place < len(message):
        key, place = _varint(message, place)
        length, place = _varint(message, place)
        if key & 7 != TEXT or place + length > len(message):
            raise ValueError("not a request of a raylet")
        found[key >> 3] = message[place : place + length]
        place += length
    return found


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """An integer, and the place after it."""
    value = shift = 0
    for after, octet in enumerate(message[place:], place + 1):
        value |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            return value, after
    raise ValueError("not a request of a raylet")


def _text(field: int, text: str) -> bytes:
    data, length = text.encode(), b""
    rest = len(data)
    while rest > 0x7F:
        length += bytes((rest & 0x7F | 0x80,))
        rest >>= 7
    return bytes((field << 3 | TEXT,)) + length + bytes((rest,)) + data


class _Requests(socketserver.StreamRequestHandler):
    timeout = PATIENCE_S

    def handle(self) -> None:
        """Answer one request, and end the connection."""
        path = self.rfile.readline(BODY_LIMIT).split(b" ")[1].decode()
        length = 0
        for _ in range(HEADERS_LIMIT):
            name, _, value = self.rfile.readline(BODY_LIMIT).partition(b":")
            if name.lower() == b"content-length":
                length = min(int(value), BODY_LIMIT)
            if not name.strip():
                break
        reply = reply_to(path, self.rfile.read(length))
        status, body = ("404 Not Found", b"") if reply is None else ("200 OK", reply)
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
        self.wfile.write(f"{head}Connection: close\r\n\r\n".encode() + body)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def main() -> None:
    """Entry of the process. It ends with its raylet."""
    raylet = os.getppid()
    options = dict(each.split("=", 1) for each in sys.argv if each.startswith("--") and "=" in each)
    with _Server((options["--node-ip-address"], 0), _Requests) as server:
        path = f"{options['--session-dir']}/{PORT}_{options['--node-id']}"
        with open(f"{path}.new", "w", encoding="ascii") as file:
            file.write(str(server.server_address[1]))
        os.replace(f"{path}.new", path)
        server.timeout = LOOK_EVERY_S
        while os.getppid() == raylet:
            server.handle_request()


if __name__ == "__main__":
    main()
