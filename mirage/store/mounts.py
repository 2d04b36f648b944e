"""Which file system a directory lies on. Standard library only: every command asks."""

from __future__ import annotations

from pathlib import Path

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "panfs", "orangefs"}
_NETWORK |= {"pvfs2", "wekafs", "glusterfs", "ocfs2", "gfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"}
_MOUNTS = Path("/proc/self/mountinfo")


def network_file_system(folder: Path) -> str:
    """The type of the network file system that holds ``folder``; empty: a local one does.

    Raises ``OSError`` where the directory cannot be resolved.
    """
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    kind = file_system(folder.resolve(), mounts)
    return kind if kind in _NETWORK else ""


def file_system(directory: Path, mounts: str) -> str:
    """The type of the file system that holds ``directory``, from the text of mountinfo; empty: not known."""
    best, kind = "", ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = _unescaped(before.split()[4])
        if directory.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, after.split()[0]
    return kind


def _unescaped(text: str) -> str:
    """Blanks and backslashes in mount points are written in octal."""
    for octal, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, plain)
    return text
