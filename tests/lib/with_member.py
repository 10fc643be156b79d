"""Runs a command with a member beside it: `with_member.py [--port PORT] [--set NAME=VALUE]… COMMAND ARGUMENT…`.

The command finds the member in BATON_URI, BATON_HOST and BATON_PORT; its exit code is this program's. A member that
died meanwhile turns success into failure.
"""

import os
import subprocess
import sys

from member import Member


def main():
    arguments, parameters, port = sys.argv[1:], {"enableTestCommands": 1}, None
    if arguments and arguments[0] == "--port":
        port, arguments = int(arguments[1]), arguments[2:]
    while arguments and arguments[0] == "--set":
        name, value = arguments[1].split("=", 1)
        parameters[name] = value
        arguments = arguments[2:]
    with Member(port=port, parameters=parameters) as member:
        environment = {**os.environ, "BATON_URI": member.uri, "BATON_HOST": "127.0.0.1",
                       "BATON_PORT": str(member.port)}
        code = subprocess.call(arguments, env=environment)
        if not member.is_running():
            print(f"the member died meanwhile:\n{member.log()}", file=sys.stderr)
            code = code or 1
    sys.exit(code)


if __name__ == "__main__":
    main()
