"""A gateway whose state directory is full still answers requests."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from serving_models import write_scale
from serving_site import Site, digest
from small_disks import mounted

if TYPE_CHECKING:
    from pathlib import Path

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
TEXT = f"""
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
"""


@ROOT
def test_gateway_goes_on_without_room_for_its_address_and_estimates(tmp_path: Path) -> None:
    write_scale(tmp_path / "scale.onnx")
    disk = tmp_path / "disk"
    with mounted(disk, "64k"):
        (disk / "state").mkdir(mode=0o700)
        ballast = disk / "ballast"
        with ballast.open("ab", buffering=0) as file:
            fill_up(file.fileno())
        site = Site(tmp_path, TEXT, state=str(disk / "state")).start()
        try:
            assert site.infer("scale").status == 200
            site.wait(lambda: "cannot write this gateway's address" in site.said, "the word on the address")
            ballast.unlink()
            site.wait(lambda: " ready\n" in site.said, "the address to be written once there is room")
            with ballast.open("ab", buffering=0) as file:
                fill_up(file.fileno())
            assert site.infer("scale").status == 200
        finally:
            code = site.stop()
        assert code == 0, site.said
        assert site.said.count("not written") <= 2
        assert "Traceback" not in site.said


def fill_up(descriptor: int) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):  # noqa: PT012
        while True:
            os.write(descriptor, b"x" * 512)
