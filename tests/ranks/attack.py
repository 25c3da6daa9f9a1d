#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Acts as another user of the machine, with only Python's standard library: attacks the ports of a
check or a training until it is terminated. Run it in a network namespace that contains nothing else.

  attack.py check PORT STEP     the leader of `ddp-check net` for step STEP, and every
                                port that the check opens afterwards
  attack.py ports               every port that a process opens from now on
  attack.py leader PORT         takes the port before the leader, and sends every task a good verdict
"""
import json
import os
import socket
import struct
import sys
import threading
import time

PAUSE = 0.01  # an attacker that used all CPUs would not need a network
IDLE = 100  # number of connections to one port


def connect(port):
    """Returns a connection, or None."""
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=0.3)
    except OSError:
        return None


def frame(message):
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text


def receive(connection):
    def exactly(count):
        data = b""
        while len(data) < count:
            piece = connection.recv(count - len(data))
            if not piece:
                raise OSError("closed")
            data += piece
        return data

    return json.loads(exactly(struct.unpack(">I", exactly(4))[0]))


def forever(attack, *arguments):
    while True:
        try:
            attack(*arguments)
        except (OSError, ValueError):
            pass
        time.sleep(PAUSE)


def keep_silent(port, held):
    """Opens as many connections as possible and stays silent."""
    held[:] = held[-IDLE:]
    connection = connect(port)
    if connection:
        held.append(connection)


def talk_nonsense(port):
    for words in (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 0x7FFFFFFF) + b"A" * 100,
        struct.pack(">I", 1 << 20) + b"[" * (1 << 20),
        frame(b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"),
        frame({"program": 1, "identity": [], "rank": 1e99}),
        b"ddp-chk2" + b"0" * 32,
        b"ddp-chk1" + struct.pack("<QQ", 0x6464702D63686B31, 1),
    ):
        connection = connect(port)
        if connection:
            connection.sendall(words)
            connection.close()


CLAIMS = [
    (rank, node, key)
    for rank in (0, 1, 57, -1)
    for node in ("n1", "n2", "ALL", "c[001-900]", "n1\n\x1b]0;pwned\x07<img src=x>", "x" * 3000)
    for key in ("plugin", "none", "munge")
]


def claim_to_be_a_task(port, step, number):
    """Claims to be a task of the step, sends invalid proofs, and answers commands with errors."""
    rank, node, key = CLAIMS[number % len(CLAIMS)]
    connection = connect(port)
    if not connection:
        return
    with connection:
        presentation = {"program": program(), "identity": step, "rank": rank, "node": node, "key": key,
                        "nonce": "0" * 32}
        connection.sendall(frame(presentation))
        hello = dict(presentation, host=node, address="127.0.0.1", leader_address="127.0.0.1",
                     by_loopback=False, data_port=9, interface="lo", leader_host="127.0.0.1",
                     leader_addresses=["127.0.0.1"], leader_lookup_error="",
                     link_bytes_per_second=None, mtu=None, probe_port=9, rails={}, leaf="",
                     rdma_ports=[], rdma_untested="", rdma_measurable=False,
                     processors=0, gpus=0, nccl_version="", nccl_problem="",
                     unix_time=0, counters={}, facts={"kernel": "another"})
        if key == "none":
            connection.sendall(frame(hello))
        challenge = receive(connection)
        connection.sendall(frame({"proof": challenge.get("proof", "")}))  # the leader's own proof, sent back
        connection.sendall(frame(hello))
        answer = receive(connection)
        print("ANSWERED", answer, flush=True)  # a process outside the step must never get an answer
        while True:
            connection.sendall(frame({"id": receive(connection)["id"], "error": "no route to host"}))


def program():
    return os.environ["PROGRAM"]  # any user can read it from the installed program


def listeners():
    """Ports that listen on all addresses, with sockets that serve both protocols."""

    def listening(table):
        with open(table) as lines:
            fields = [line.split() for line in lines.readlines()[1:]]
        return {int(f[1].split(":")[1], 16) for f in fields if f[3] == "0A"}

    return listening("/proc/net/tcp6") - listening("/proc/net/tcp")


def fill_new_ports(seen, held):
    for port in listeners() - seen:
        seen.add(port)
        for _ in range(IDLE):
            connection = connect(port)
            if connection:
                held.append(connection)
        talk_nonsense(port)
        print("port", port, "filled", flush=True)


def give_verdicts(port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen()
    print("listening", flush=True)
    while True:
        connection = listener.accept()[0]
        try:
            receive(connection)
            for message in ({"nonce": "0" * 32, "proof": "0" * 64}, {"welcome": 1},
                            {"do": "verdict", "exit_code": 0}):
                connection.sendall(frame(message))
        except (OSError, ValueError):
            pass


def attack_check(port, step):
    threading.Thread(target=forever, args=(keep_silent, port, []), daemon=True).start()
    threading.Thread(target=forever, args=(talk_nonsense, port), daemon=True).start()
    for number in range(4):
        counter = iter(range(number, 1 << 60, 4))
        threading.Thread(target=forever, daemon=True,
                         args=(lambda: claim_to_be_a_task(port, step, next(counter)),)).start()
    forever(fill_new_ports, {port}, [])


def main():
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "check":
        attack_check(int(rest[0]), rest[1])
    elif what == "ports":
        forever(fill_new_ports, set(), [])
    elif what == "leader":
        give_verdicts(int(rest[0]))


main()
