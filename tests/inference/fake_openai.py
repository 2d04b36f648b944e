"""A server that speaks as much of OpenAI's protocol as the gateway needs: it counts, one number per part.

``sys.argv``: port, directory. What the prompt says goes wrong: ``die`` (once: the first time in all), ``break``
(off
in the middle of a stream), ``refuse``, ``slow`` (takes 20 s), ``odd`` (a status that is none), ``freeze`` (it all
stops). ``flood``: the stream begins with 96 MiB; ``trickle``: it takes 8 s. Who does not bring the key of the
environment is rejected, as by vLLM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PARTS = 5
PAUSE = 0.1
FLOOD_MIB = 96
SLOW, TRICKLES = 20.0, 80


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if not self.knows():
            return
        self.reply(200, {"object": "list", "data": [{"id": "counter"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.knows():
            return
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        marker = Path(sys.argv[2]) / "died"
        if prompt == "die" and not marker.exists():
            marker.touch()
            os._exit(3)
        if prompt == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if prompt == "slow":
            time.sleep(SLOW)
        if prompt in ("negative", "short"):
            self.send_response(200)
            self.send_header(
                *(("Transfer-Encoding", "chunked") if prompt == "negative" else ("Content-Length", "1000"))
            )
            self.end_headers()
            self.wfile.write(b"-5\r\nhello\r\n0\r\n\r\n" if prompt == "negative" else b"hello")
            self.close_connection = True
        elif prompt == "odd":
            self.reply(999, {})
        elif prompt == "refuse" or body["model"] != "counter":
            self.reply(400, {"error": {"message": f"{body['model']} does not like it"}})
        elif body.get("stream"):
            self.stream(prompt)
        else:
            time.sleep(PARTS * PAUSE)
            self.reply(200, {"choices": [{"text": "01234", "prompt": prompt}]})

    def knows(self) -> bool:
        known = self.headers["Authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}"
        if not known:
            self.reply(401, {"error": {"message": "Unauthorized"}})
        return known

    def stream(self, prompt: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if prompt == "flood":
            for _ in range(FLOOD_MIB):
                self.chunk(bytes(1 << 20))
        for number in range(TRICKLES if prompt == "trickle" else PARTS):
            self.chunk(f"data: {number}\n\n".encode())
            time.sleep(PAUSE)
            if prompt == "break" and number == 2:
                os._exit(4)
        self.chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def reply(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
