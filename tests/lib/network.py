"""The network between the members of a set, as small TCP proxies, so that tests can cut it.

Every member advertises the address of its proxy. Whatever connects there is carried to the member; who it was is found in
the system's table of sockets, so that a cut can be of one pair of members, and of one direction. Clients that mean to reach
a member whatever the network is like connect to its own port.

    network.cut(0, 1)            what member 0 sends no longer reaches member 1, in either's connections
    network.isolate(0)           nothing between member 0 and the others, either way
    network.heal()

A cut drops: bytes wait in the proxy and connections stay open, as with a firewall that says nothing; a new connection is
accepted by the proxy, but nothing comes of it. When it heals, what had waited is not delivered any more: the connections
concerned are closed.

Invariant: one thread for a network; nothing is read from a side whose other side does not take it.
What it deliberately does not do: delay, reorder, or lose single packets.
"""

import os
import selectors
import socket
import threading

CHUNK = 1 << 16
BUFFERED_MAX = 1 << 20
CLIENT = "client"


class _Link:
    """One connection through a proxy: two sockets, and what each is still to be given."""

    def __init__(self, source, target, near, far):
        self.source, self.target = source, target
        self.near, self.far = near, far
        # By the socket that they are to be written to.
        self.waiting = {near: bytearray(), far: bytearray()}
        self.tainted = False

    def other(self, end):
        return self.far if end is self.near else self.near

    def way(self, read_from):
        """Who sends what is read there, and to whom."""
        return (self.source, self.target) if read_from is self.near else (self.target, self.source)


class Network:
    """See the file's header. `targets` are the members' own ports; `ports` are where the proxies listen."""

    def __init__(self, targets, pid_of):
        self.targets = list(targets)
        self._pid_of = pid_of
        self._selector = selectors.DefaultSelector()
        self._links = set()
        self._cuts = set()
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._stopping = False
        self._listeners = []
        for index in range(len(self.targets)):
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            listener.setblocking(False)
            self._listeners.append(listener)
            self._selector.register(listener, selectors.EVENT_READ, index)
        self.ports = [listener.getsockname()[1] for listener in self._listeners]
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self._thread.start()

    def add(self, target):
        """A proxy for another member; returns its port."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        listener.setblocking(False)
        with self._lock:
            self.targets.append(target)
            self._listeners.append(listener)
            self.ports.append(listener.getsockname()[1])
            self._selector.register(listener, selectors.EVENT_READ, len(self.targets) - 1)
        self._wake.send(b"w")
        return self.ports[-1]

    def cut(self, source, target):
        """What `source` sends does not reach `target` any more."""
        with self._lock:
            self._cuts.add((source, target))
        self._wake.send(b"w")

    def isolate(self, member, direction="both"):
        """Cuts a member off from the others: "both" ways, or only what it sends ("out") or is sent ("in")."""
        for other in range(len(self.targets)):
            if other != member:
                if direction in ("both", "out"):
                    self.cut(member, other)
                if direction in ("both", "in"):
                    self.cut(other, member)

    def heal(self):
        """Everybody reaches everybody again, by new connections where the old ones have lost something."""
        with self._lock:
            self._cuts.clear()
        self._wake.send(b"w")

    def close(self):
        """Ends all connections and the thread."""
        with self._lock:
            self._stopping = True
        self._wake.send(b"w")
        self._thread.join(10)

    # ---- the thread ----

    def _run(self):
        while True:
            events = self._selector.select()
            with self._lock:
                if self._stopping:
                    break
                for key, mask in events:
                    self._handle(key, mask)
                for link in list(self._links):
                    self._settle(link)
        for link in list(self._links):
            self._close(link)
        for listener in self._listeners:
            listener.close()

    def _handle(self, key, mask):
        if key.data is None:
            try:
                self._woken.recv(4096)
            except BlockingIOError:
                pass
        elif isinstance(key.data, int):
            self._accept(key.fileobj, key.data)
        elif key.data in self._links:
            link = key.data
            if mask & selectors.EVENT_READ:
                self._read(link, key.fileobj)
            if mask & selectors.EVENT_WRITE and link in self._links:
                self._write(link, key.fileobj)

    def _accept(self, listener, target):
        try:
            near, address = listener.accept()
        except OSError:
            return
        source = self._source_of(address[1], self.ports[target])
        near.setblocking(False)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = socket.socket()
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # On the loopback this is done at once, or refused.
            far.settimeout(1)
            far.connect(("127.0.0.1", self.targets[target]))
        except OSError:
            # Refused, as the member would: a process that is gone is to be seen as gone.
            _reset(near)
            far.close()
            return
        far.setblocking(False)
        self._links.add(_Link(source, target, near, far))

    def _source_of(self, port, to):
        """The member that a connection comes from, by its port. Older connections may have had the same one, to others."""
        wanted = [f"0100007F:{port:04X}", f"0100007F:{to:04X}"]
        inode = None
        with open("/proc/net/tcp", encoding="ascii") as table:
            for line in table:
                fields = line.split()
                if fields[1:3] == wanted:
                    inode = fields[9]
                    break
        if inode is None:
            return CLIENT
        name = f"socket:[{inode}]"
        for index in range(len(self.targets)):
            pid = self._pid_of(index)
            if pid is None:
                continue
            try:
                for descriptor in os.scandir(f"/proc/{pid}/fd"):
                    try:
                        if os.readlink(descriptor.path) == name:
                            return index
                    except OSError:
                        continue
            except OSError:
                continue
        return CLIENT

    def _read(self, link, end):
        if link.way(end) in self._cuts:
            return
        try:
            data = end.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(link)
            return
        link.waiting[link.other(end)] += data
        self._write(link, link.other(end))

    def _write(self, link, end):
        waiting = link.waiting[end]
        if not waiting:
            return
        try:
            del waiting[:end.send(waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(link)

    def _settle(self, link):
        """Watches both ends for what can be done; ends a link that a cut that has healed went through."""
        ways = [link.way(link.near), link.way(link.far)]
        cut = any(way in self._cuts for way in ways)
        link.tainted |= cut
        if link.tainted and not cut:
            self._close(link)
            return
        for end in (link.near, link.far):
            mask = 0
            if link.way(end) not in self._cuts and len(link.waiting[link.other(end)]) < BUFFERED_MAX:
                mask |= selectors.EVENT_READ
            if link.waiting[end]:
                mask |= selectors.EVENT_WRITE
            self._watch(end, mask, link)

    def _watch(self, end, mask, link):
        try:
            known = self._selector.get_key(end)
        except (KeyError, ValueError):
            if mask:
                self._selector.register(end, mask, link)
            return
        if not mask:
            self._selector.unregister(end)
        elif known.events != mask:
            self._selector.modify(end, mask, link)

    def _close(self, link):
        self._links.discard(link)
        for end in (link.near, link.far):
            try:
                self._selector.unregister(end)
            except (KeyError, ValueError):
                pass
            _reset(end)


def _reset(end):
    """Closes with a reset, so that the other side notices at once and nothing lingers."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    except OSError:
        pass
    end.close()
