"""A client that sends requests to the active link, and retries if that link ends meanwhile."""

import http.client
import time
import urllib.request
from pathlib import Path


def ask(path: str, timeout: float = 600) -> str:
    """Return the response. Raises the last error after ``timeout`` seconds without one."""
    until = time.monotonic() + timeout
    while True:
        try:
            address = Path("address").read_text()
            with urllib.request.urlopen(f"{address.strip()}{path}", timeout=60) as answer:
                return answer.read().decode().strip()
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() > until:
                raise
            print(f"retry: {error}", flush=True)
            time.sleep(1)


while True:
    print(ask("/ask"), flush=True)
    time.sleep(0.2)
