"""A model server for a chain: reports when it is ready, and completes its requests when it has to exit."""

import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS = float(os.environ.get("SECONDS_TO_LOAD", "120"))  # stands for the loading of a model
ADDRESS = Path("address")  # clients read it; it must be on a shared file system
LINK = os.environ.get("MIRAGE_LINK", "-")

ready = threading.Event()
leave = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leave.set())


class Handler(BaseHTTPRequestHandler):
    """``/health`` for health checks; any other path is a request to the model."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply(200 if ready.is_set() else 503, "ready" if ready.is_set() else "loading")
        else:
            self.reply(200, f"link {LINK}")

    def reply(self, status: int, text: str) -> None:
        body = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def publish(address: str) -> None:
    """Write a new file and rename it: clients read the old address or the new one, never half of it."""
    new = ADDRESS.with_suffix(f".{os.getpid()}")
    new.write_text(address)
    new.replace(ADDRESS)


def take_over() -> None:
    """Create the file on which Mirage ends the predecessor."""
    file = Path(os.environ["MIRAGE_HANDOVER_FILE"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


server = ThreadingHTTPServer(("", 0), Handler)
server.daemon_threads = False  # server_close waits for the requests in progress
threading.Thread(target=server.serve_forever).start()
time.sleep(SECONDS)
ready.set()
publish(f"http://{os.uname().nodename}:{server.server_port}")
take_over()
print(f"link {LINK} serves", flush=True)
leave.wait()
server.shutdown()
server.server_close()
print(f"link {LINK} has completed its requests", flush=True)
