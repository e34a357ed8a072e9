"""A server that speaks OpenAI's protocol, as far as ``gonogo diagnose --reader`` does: it answers what a test says."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        stub: Any = self.server
        self.asked = json.loads(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        stub.requests.append((self.path, headers, self.asked))
        with contextlib.suppress(ConnectionError):
            stub.reply(self)

    def send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def completion(content: str | None, **message: Any) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content, **message}}
    return json.dumps(
        {"id": "1", "object": "chat.completion", "created": 1, "model": "stub", "choices": [choice]}
    ).encode()


def says(content: str | dict[str, Any], **message: Any) -> Reply:
    text = content if isinstance(content, str) else json.dumps(content)
    return lambda request: request.send(200, completion(text, **message))


def status(code: int, said: str) -> Reply:
    return lambda request: request.send(code, json.dumps({"error": {"message": said, "type": "x"}}).encode())


def only_plain(content: dict[str, Any]) -> Reply:
    """A server that knows no response_format."""

    def reply(request: Request) -> None:
        if "response_format" in request.asked:
            status(400, "response_format is not supported")(request)
        else:
            says(content)(request)

    return reply


def drips(request: Request) -> None:
    """A byte now and then, for ever: each arrives well before a read times out."""
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", "100000")
    request.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(600):
            request.wfile.write(b" ")
            request.wfile.flush()
            time.sleep(0.1)


def silent(request: Request) -> None:
    time.sleep(20)


def endless(request: Request) -> None:
    request.send_response(200)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(1 << 30))
    request.end_headers()
    with contextlib.suppress(OSError):
        for _ in range(1 << 10):
            request.wfile.write(b"x" * (1 << 20))


def hangs_up(request: Request) -> None:
    request.send_response(200)
    request.send_header("Content-Length", "1000")
    request.end_headers()
    request.wfile.write(b'{"choices": [')
    request.close_connection = True
    request.connection.close()


@contextlib.contextmanager
def serving(reply: Reply) -> Iterator[tuple[str, list[Any]]]:
    """The server's address, and what it was asked."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Request)
    server.daemon_threads = True
    server.reply, server.requests = reply, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", server.requests
    finally:
        server.shutdown()
        server.server_close()
