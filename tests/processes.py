"""Several processes in a test, started from one that has imported torch, connected as by torchrun."""

import multiprocessing
import os
import socket
import sys
from functools import cache
from multiprocessing import forkserver

import pytest
import torch

from attention_on_edges.training.distributed import process_group


@cache
def _forking():
    """Start the server of :func:`process`; before Python 3.13 it finds modules by the environment alone."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["processes", "pytest", "hypothesis", "attention_on_edges.cli.app"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        forkserver.ensure_running()
    return context


def process(target, *arguments):
    """Return a process in this one's environment that has torch and the tests imported from its beginning."""
    return _forking().Process(target=_work, args=(dict(os.environ), target, arguments))


def _work(environment, target, arguments):
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def set_role(monkey, rank, size, port):
    """Give the environment that ``torchrun`` gives."""
    roles = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    for name, value in (roles | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}).items():
        monkey[name] = str(value)


def work(rank, size, port, pipe, function, arguments):
    set_role(os.environ, rank, size, port)
    torch.set_num_threads(1)
    with process_group("cpu"):
        pipe.send(function(*arguments))


def in_team(function, *arguments, size=2):
    """Run ``function(*arguments)`` in several processes; return what each of them made of it."""
    port, pipes, processes = free_port(), [], []
    for rank in range(size):
        ours, theirs = multiprocessing.Pipe(duplex=False)
        processes.append(process(work, rank, size, port, theirs, function, arguments))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    results = [pipe.recv() if pipe.poll(300) else None for pipe in pipes]
    for each in processes:
        each.join(60)
    assert [each.exitcode for each in processes] == [0] * size
    return results
