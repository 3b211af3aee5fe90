"""What the Python sessions share: named steps, comparison, a relay that counts connections, and the documents."""

import argparse
import asyncio
import inspect
import os
import socket
import threading


class Difference(Exception):
    """An answer is not what it should be."""


def same(got, expected):
    if got != expected:
        raise Difference(f"expected {expected!r}, got {got!r}")


def holds(is_so, difference):
    if not is_so:
        raise Difference(difference)


async def value(answer):
    """What a call gives: at once from a client that blocks, awaited from one that does not."""
    return await answer if inspect.isawaitable(answer) else answer


async def listed(iterator):
    """All that an iterator gives, of either kind."""
    if hasattr(iterator, "__aiter__"):
        return [item async for item in iterator]
    return list(iterator)


async def refused(call, error_class, words):
    """Makes a call that must fail, with these words in the error."""
    try:
        got = await value(call())
    except error_class as error:
        holds(words in str(error), f"expected an error with {words!r}, got {error!r}")
    else:
        raise Difference(f"expected an error with {words!r}, got {got!r}")


class Relay:
    """Passes bytes on to a port of this machine, and counts the connections that it was asked for."""

    def __init__(self, port):
        self.count = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            self.count += 1
            server = socket.create_connection(("127.0.0.1", self._to))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pass_on(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # One side is gone, and so is the other soon.


class Steps:
    """The steps of a session, in the order in which they are written."""

    def __init__(self):
        self._steps = []

    def __call__(self, name):
        def add(step):
            self._steps.append((name, step))
            return step

        return add

    async def run(self, session):
        for name, step in self._steps:
            try:
                await asyncio.wait_for(step(session), timeout=60)
            except Exception as error:  # noqa: BLE001 whatever it is, it is told with the step's name
                raise SystemExit(f"FAILED {name}: {type(error).__name__}: {error}") from error
            print(f"ok {name}", flush=True)


def arguments(about):
    """The port, the session key and the version of RESP."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("port", type=int)
    parser.add_argument("--protocol", type=int, choices=(2, 3), default=2)
    parser.add_argument("--key-file", help="a file with the session key; else it is in AGQ_SESSION_KEY")
    given = parser.parse_args()
    if given.key_file:
        with open(given.key_file, encoding="utf-8") as file:
            given.key = file.read().strip()
    else:
        given.key = os.environ["AGQ_SESSION_KEY"]
    return given


PLAN = {"plan_id": "session", "tasks": [{"task_number": 1, "command": "sort", "args": ["{{input.file}}"]}]}
ACTION = {"action_id": "batch", "plan_id": "session", "inputs": [{"file": "a.txt"}, {"file": "b.txt"}]}
WORKER = {"worker_id": "worker-session", "capabilities": ["sort"]}
RESULT = {"task_number": 1, "command": "sort", "exit_code": 0, "stdout": "a\n", "stderr": "", "duration_ms": 3}
