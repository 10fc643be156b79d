"""Faults of a member's machine: syncs that fail, wait or are slow, a wall clock that is wrong (`faults.c`, preloaded), and a small
disk.

What it deliberately does not do: damage what was written (`tests/crash/power.py` does).
"""

import mmap
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

_library = None


def _compiled():
    global _library
    if _library is None:
        _library = tempfile.TemporaryDirectory(prefix="baton-faults-")
        source = pathlib.Path(__file__).with_name("faults.c")
        output = pathlib.Path(_library.name) / "faults.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", output, source, "-ldl"], check=True)
    return pathlib.Path(_library.name) / "faults.so"


class MachineFaults:
    """The faults of one member's machine; none until they are asked for."""

    def __init__(self):
        self._file = tempfile.NamedTemporaryFile(prefix="baton-faults-")
        self._file.write(bytes(40))
        self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), 40)

    def environment(self):
        """What to start the member with."""
        return {"LD_PRELOAD": str(_compiled()), "BATON_FAULTS": self._file.name}

    def shift_clock(self, seconds):
        """The wall clock is wrong by so much from now on."""
        struct.pack_into("q", self._map, 0, seconds)

    def fail_syncs(self, errno):
        """Every sync fails from now on."""
        struct.pack_into("q", self._map, 8, errno)

    def hold_syncs(self, on):
        """No sync returns as long as this is on."""
        struct.pack_into("q", self._map, 24, int(on))

    def slow_syncs(self, milliseconds):
        """Every sync takes so much longer from now on."""
        struct.pack_into("q", self._map, 32, milliseconds)

    @property
    def syncs_failed(self):
        """How many syncs have failed."""
        return struct.unpack_from("q", self._map, 16)[0]


class SmallDisk:
    """A file system in memory that holds so many megabytes; a context manager. Needs root."""

    def __init__(self, megabytes):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="baton-disk-"))
        self._mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", self.path],
            stderr=subprocess.DEVNULL, check=False).returncode == 0

    @property
    def is_there(self):
        """Whether this machine lets us mount it."""
        return self._mounted

    def fill(self):
        """Leaves no space."""
        with open(self.path / "ballast", "ab", buffering=0) as ballast:
            try:
                while ballast.write(bytes(1 << 20)):
                    pass
            except OSError:
                pass

    def free_bytes(self):
        """What it has left."""
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def free(self):
        """Gives the space back."""
        (self.path / "ballast").unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._mounted:
            subprocess.run(["umount", "-l", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)
