"""A connection that sends any bytes: for bad input, and for what a driver would put right before sending."""

import resource
import socket
import struct

import bson
import pytest

OP_MSG = 2013


def room_for(member, count):
    """Lets this process have so many connections to a member beside what it has; skips the test where one of the two may not."""
    beside = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = int(open(f"/proc/{member.pid}/limits").read().split("Max open files")[1].split()[0])
    if min(hard, limit) < count + beside:
        pytest.skip(f"the machine allows {hard} open files, and the member {limit}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + beside), hard))


class Raw:
    """One TCP connection to a member, a context manager."""

    def __init__(self, member):
        self.socket = socket.create_connection(("127.0.0.1", member.port), timeout=30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """Sends bytes as they are. The other side may close before all are sent, which is an answer."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def message(self, body, flags=0, opcode=OP_MSG, sections=b""):
        """Sends one message with the bytes of a body, and of further sections."""
        payload = struct.pack("<I", flags) + b"\x00" + body + sections
        self.send(struct.pack("<iiii", 16 + len(payload), 1, 0, opcode) + payload)

    def reply(self):
        """The reply's document, or None when the connection was closed."""
        header = self.read(16)
        if header is None:
            return None
        payload = self.read(struct.unpack("<i", header[:4])[0] - 16)
        return bson.decode(payload[5:])

    def command(self, database, command):
        """Runs a command exactly as given: no session, no transaction number that it does not name."""
        self.message(bson.encode({**command, "$db": database}))
        return self.reply()

    def read(self, count):
        """That many bytes, or None when the connection was closed."""
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not piece:
                return None
            data += piece
        return data
