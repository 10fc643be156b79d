"""Runs a command with a replica set of three members beside it: `with_set.py [--members N] [--set NAME=VALUE]… COMMAND ARGUMENT…`.

The command finds the set in BATON_URI, and its primary in BATON_HOST and BATON_PORT; its exit code is this program's. A member
that died meanwhile turns success into failure, and so do members that differ in the end.
"""

import os
import subprocess
import sys

from replica_set import ReplicaSet


def main():
    arguments, parameters, count = sys.argv[1:], {"enableTestCommands": 1}, 3
    if arguments and arguments[0] == "--members":
        count, arguments = int(arguments[1]), arguments[2:]
    while arguments and arguments[0] == "--set":
        name, value = arguments[1].split("=", 1)
        parameters[name] = value
        arguments = arguments[2:]
    members = ReplicaSet(count)
    for member in members.members:
        member.parameters = parameters
    with members:
        port = members.members[members.primary()].port
        environment = {**os.environ, "BATON_URI": members.uri, "BATON_HOST": "127.0.0.1", "BATON_PORT": str(port)}
        code = subprocess.call(arguments, env=environment)
        for member in members.members:
            if not member.is_running():
                print(f"a member died meanwhile:\n{member.log()}", file=sys.stderr)
                code = code or 1
        members.await_equal()
    sys.exit(code)


if __name__ == "__main__":
    main()
