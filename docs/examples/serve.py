"""A server whose successor takes over when it is ready; the file ``endpoint`` has the active link's address."""

import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS = float(os.environ.get("SECONDS_TO_LOAD", "120"))  # stands for the loading of a model
ENDPOINT = Path("endpoint")


class Answers(BaseHTTPRequestHandler):
    """Requests to the model."""

    def do_GET(self) -> None:
        """Return the number of the link."""
        text = f"link {os.environ.get('MIRAGE_LINK', '-')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def take_over(address: str) -> None:
    """Publish the address for clients; then Mirage may end the predecessor."""
    new = ENDPOINT.with_suffix(f".{os.getpid()}")
    new.write_text(address)
    new.replace(ENDPOINT)
    ready = Path(os.environ["MIRAGE_HANDOVER_FILE"])
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.touch()


time.sleep(SECONDS)
server = ThreadingHTTPServer(("", 0), Answers)
server.daemon_threads = False  # server_close waits for the requests in progress
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
take_over(f"http://{os.uname().nodename}:{server.server_port}")
print(f"link {os.environ.get('MIRAGE_LINK', '-')} answers", flush=True)
server.serve_forever()
server.server_close()
print("drained", flush=True)
