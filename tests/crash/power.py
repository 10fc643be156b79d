"""The loss of power, as far as a test can play it: after a SIGKILL, files lose of what was never synced.

`Ledger` compiles and preloads `ledger.c`, which notes every sync that the kernel confirmed. `lose_unsynced` then cuts
RocksDB's logs, tables and manifests somewhere between the length that the ledger vouches for and the one they have.

What it deliberately does not do: undo the creation or renaming of files, or damage what a file keeps.
"""

import os
import pathlib
import subprocess
import tempfile


class Ledger:
    """What was synced in one data directory."""

    def __init__(self, data):
        self.folder = tempfile.TemporaryDirectory(prefix="baton-ledger-")
        self.file = pathlib.Path(self.folder.name) / "ledger"
        self.library = pathlib.Path(self.folder.name) / "ledger.so"
        self.data = pathlib.Path(data)
        source = pathlib.Path(__file__).with_name("ledger.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.library, source], check=True)

    def environment(self):
        """What to start the member with."""
        return {"LD_PRELOAD": str(self.library), "BATON_SYNC_LEDGER": str(self.file)}

    def faults(self):
        """Logs that were written to before the log that they follow was synced."""
        lines = self.file.read_text().splitlines()
        return [f"written to before the log that it follows was synced: {line[6:]}" for line in lines if line.startswith("early ")]

    def lose_unsynced(self, draw):
        """Cuts every file; gives the bytes that were lost."""
        synced = {}
        for line in self.file.read_text().splitlines():
            length, path = line.split(" ", 1)
            if length == "early":
                continue
            name = pathlib.Path(path).name
            synced[name] = max(synced.get(name, 0), int(length))
        lost = 0
        for path in sorted((self.data / "rocksdb").iterdir()):
            if path.suffix in (".log", ".sst") or path.name.startswith("MANIFEST-"):
                size = path.stat().st_size
                least = min(size, synced.get(path.name, 0))
                keep = draw.choice([least, least, size, draw.randint(least, size)])
                lost += size - keep
                os.truncate(path, keep)
        return lost

    def close(self):
        """Removes the ledger and the library."""
        self.folder.cleanup()
