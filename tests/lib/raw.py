"""A connection that sends any bytes: for bad input, and for what a driver would put right before sending."""

import socket
import struct

import bson

OP_MSG = 2013


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
