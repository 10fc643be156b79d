"""The distance between two sites: carries every connection from one to the other, late, and counts the bytes.

    python -m lab.proxy --delay-ms 20 --port 27017 --site baton-lab-east:198.18.0.11,198.18.0.12 --site baton-lab-west:198.18.0.13

Each site's switch answers for the machines of the other site; here somebody listens at those addresses and connects onward from the
other site's switch. So a machine reaches every other one by its own address, at its own site directly. For every line on standard
input the bytes carried so far come out, as JSON: by the name of the site that they came from.

Invariants: one thread; bytes keep their order, and each waits just as long; what is counted is what TCP carries, without headers.
What it deliberately does not do: limit the bandwidth, lose anything, know what is said.
"""

import argparse
import collections
import json
import os
import selectors
import socket
import struct
import sys
import time

from lab.machines import enter

CHUNK = 1 << 18
# More than this on its way in one direction of one connection, and no more is read.
IN_FLIGHT_MAX = 8 << 20


class Delayed:
    """Bytes on their way, each with when it is due."""

    def __init__(self, delay_seconds):
        self._delay_seconds = delay_seconds
        self._chunks = collections.deque()
        self.size = 0

    def put(self, now, data):
        """Something sets out; empty: the end."""
        self._chunks.append((now + self._delay_seconds, memoryview(data)))
        self.size += len(data)

    def due_at(self):
        """When the first arrives, if anything is on its way."""
        return self._chunks[0][0] if self._chunks else None

    def deliver(self, now, send):
        """Gives what is due to `send`, which returns how much it took; returns whether the end was reached."""
        while self._chunks and self._chunks[0][0] <= now:
            due, data = self._chunks[0]
            if not data:
                return True
            taken = send(data)
            self.size -= taken
            if taken < len(data):
                self._chunks[0] = (due, data[taken:])
                return False
            self._chunks.popleft()
        return False


class Link:
    """One connection: two ends, and what is on its way to each."""

    def __init__(self, near, far, sites, delay_seconds):
        self.ends = (near, far)
        self.sites = sites
        self.to = {far: Delayed(delay_seconds), near: Delayed(delay_seconds)}
        self.blocked = set()
        self.ended = set()

    def other(self, end):
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def site_of(self, end):
        return self.sites[0] if end is self.ends[0] else self.sites[1]


class Proxy:
    """See the file's header. `sites` are pairs of a namespace and the addresses of its machines."""

    def __init__(self, sites, port, delay_seconds):
        self._delay_seconds, self._port = delay_seconds, port
        self._selector = selectors.DefaultSelector()
        self._links = set()
        self.carried = {site: 0 for site, _ in sites}
        for here, _ in sites:
            for there, addresses in sites:
                for address in addresses if there != here else ():
                    enter(here)
                    listener = socket.create_server((address, port), backlog=128)
                    listener.setblocking(False)
                    self._selector.register(listener, selectors.EVENT_READ, (here, there, address))
        self._selector.register(sys.stdin, selectors.EVENT_READ, None)

    def run(self):
        """Until standard input ends."""
        while True:
            dues = [due for link in self._links for queue in link.to.values() if (due := queue.due_at()) is not None]
            timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
            for key, mask in self._selector.select(timeout):
                if key.data is None:
                    if not os.read(0, 4096):
                        return
                    print(json.dumps(self.carried), flush=True)
                elif isinstance(key.data, tuple):
                    self._accept(key.fileobj, *key.data)
                elif key.data in self._links:
                    if mask & selectors.EVENT_WRITE:
                        key.data.blocked.discard(key.fileobj)
                    if mask & selectors.EVENT_READ:
                        self._read(key.data, key.fileobj)
            now = time.monotonic()
            for link in list(self._links):
                self._deliver(link, now)

    def _accept(self, listener, here, there, address):
        try:
            near, _ = listener.accept()
        except OSError:
            return
        enter(there)
        far = socket.socket()
        far.settimeout(1)
        try:
            far.connect((address, self._port))
        except OSError:
            # Refused, as the member would: a process that is gone is to be seen as gone.
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            near.close()
            far.close()
            return
        for end in (near, far):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(near, far, (here, there), self._delay_seconds)
        self._links.add(link)
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ, link)

    def _read(self, link, end):
        try:
            data = end.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            link.ended.add(end)
        self.carried[link.site_of(end)] += len(data)
        link.to[link.other(end)].put(time.monotonic(), data)

    def _deliver(self, link, now):
        def sender(end):
            def send(data):
                try:
                    return end.send(data)
                except BlockingIOError:
                    link.blocked.add(end)
                    return 0
            return send

        try:
            for end in link.ends:
                if end not in link.blocked and link.to[end].deliver(now, sender(end)):
                    self._close(link)
                    return
        except OSError:
            self._close(link)
            return
        for end in link.ends:
            reads = end not in link.ended and link.to[link.other(end)].size < IN_FLIGHT_MAX
            mask = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if end in link.blocked else 0)
            self._watch(end, mask, link)

    def _watch(self, end, mask, link):
        known = self._selector.get_map().get(end.fileno())
        if known is None:
            if mask:
                self._selector.register(end, mask, link)
        elif not mask:
            self._selector.unregister(end)
        elif known.events != mask:
            self._selector.modify(end, mask, link)

    def _close(self, link):
        self._links.discard(link)
        for end in link.ends:
            if end.fileno() in self._selector.get_map():
                self._selector.unregister(end)
            end.close()


def main():
    parser = argparse.ArgumentParser(description="Delay between two sites")
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--site", action="append", required=True)
    arguments = parser.parse_args()
    sites = [(site.split(":")[0], site.split(":")[1].split(",")) for site in arguments.site]
    Proxy(sites, arguments.port, arguments.delay_ms / 1000).run()


if __name__ == "__main__":
    main()
