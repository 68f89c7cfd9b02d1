"""Graphs for threads and processes to saturate, and threads that can't hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from lowering import Options, saturate

LIMIT_S = 50


# Graphs


def qkv(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    q, k, v = y.split([8, 4, 4], -1)
    return q.sin(), k.cos(), v.tan(), y[:, 8:12].exp(), y[:, :8].sin()


def halves(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    return y[:, :8].sin(), y[:, 8:].cos()


def written(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x @ w
    z = torch.slice_scatter(y, y[:, :4].sin(), 1, 0, 4)
    return z[:, :4].cos(), z[:, 4:10].cos(), z[:, 10:].cos()


def rows(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return tuple(w.select(0, i).sin() for i in range(5))


def whole(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(x.split(1)).sin(),)


FUNCTIONS = (qkv, halves, written, rows, whole)


def graph_of(function: Callable[..., object]) -> fx.Graph:
    module = make_fx(function, tracing_mode="fake")(torch.ones(3, 5), torch.ones(5, 16))
    assert isinstance(module, fx.GraphModule)
    return module.graph


def graphs() -> list[fx.Graph]:
    """One graph of each kind. Tracing isn't made for several threads at once."""
    return [graph_of(function) for function in FUNCTIONS]


def results(found: list[fx.Graph], options: Options = Options()) -> list[tuple[str, str, bool]]:
    """Saturate each graph: its code, and how that ended."""
    done = []
    for graph in found:
        report = saturate(graph, options)
        done.append((graph.python_code("self").src, report.stopped, report.changed))
    return done


def in_threads(functions: list[Callable[[], Any]]) -> list[Any]:
    """Run each in a thread of its own, all starting at once; what they return."""
    barrier = threading.Barrier(len(functions))
    answers: list[Any] = [None] * len(functions)

    def run(number: int) -> None:
        barrier.wait(LIMIT_S)
        answers[number] = functions[number]()

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True)
        for number in range(len(functions))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a thread hangs"
    return answers
