"""A server whose next link takes over once it is ready; the file ``endpoint`` tells clients who is in charge."""

import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECONDS = float(os.environ.get("SECONDS_TO_LOAD", "120"))  # stands for the loading of a model
ENDPOINT = Path("endpoint")


class Answers(BaseHTTPRequestHandler):
    """What the model says."""

    def do_GET(self) -> None:
        """Say who answers."""
        text = f"link {os.environ.get('MIRAGE_LINK', '-')}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def take_over(address: str) -> None:
    """Clients come here from now on; then Mirage may tell the link before to go."""
    new = ENDPOINT.with_suffix(f".{os.getpid()}")
    new.write_text(address)
    new.replace(ENDPOINT)
    ready = Path(os.environ["MIRAGE_HANDOVER_FILE"])
    ready.parent.mkdir(parents=True, exist_ok=True)
    ready.touch()


time.sleep(SECONDS)
server = ThreadingHTTPServer(("", 0), Answers)
server.daemon_threads = False  # closing waits for the answers that are on their way
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
take_over(f"http://{os.uname().nodename}:{server.server_port}")
print(f"link {os.environ.get('MIRAGE_LINK', '-')} answers", flush=True)
server.serve_forever()
server.server_close()
print("made way", flush=True)
