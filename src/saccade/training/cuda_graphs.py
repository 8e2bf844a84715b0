"""Training steps captured once and replayed: on a GPU, thousands of small kernels are launched as one CUDA graph.

A captioner's step is some three thousand kernels of a few microseconds, which a CPU launches more slowly than a GPU
runs them. A graph holds the loss and its gradients for one shape of batch; what changes from step to step is copied
into the tensors that it reads. Random numbers are drawn anew at every replay, as they would be without capture. Whether
a step waits for the GPU somewhere, and so cannot be captured, is seen when it is taken as usual.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from saccade.batch import Batch
from saccade.core.errors import SaccadeError
from saccade.tasks.base import Figures, Loss

Gradient = Callable[[Any, int], Loss]  # of a batch at a step
Key = tuple[type[Batch], tuple[torch.Size, ...]]

WARM_UP_STEPS = 2  # of a shape, taken as usual: libraries set themselves up in them
MAX_GRAPHS = 24  # shapes that are captured; any further are rare
SYNCHRONISED = "called a synchronizing CUDA operation"  # PyTorch's words


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of a batch, in one order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    batch.map(note)
    return found


def with_tensors(batch: Batch, tensors: Sequence[Tensor]) -> Batch:
    """The same batch of other tensors."""
    given = iter(tensors)
    return batch.map(lambda _: next(given))


@dataclass(frozen=True)
class CapturedStep:
    """One shape of batch: what it reads, what it leaves behind, and the graph between."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    loss: Tensor
    figures: Figures
    gradients: list[Tensor | None]


@contextmanager
def synchronisations() -> Iterator[list[str]]:
    """Filled with a note of each time that this thread waited for the GPU; another may be fetching the next batch."""
    noted: list[str] = []
    thread, mode = threading.get_ident(), torch.cuda.get_sync_debug_mode()

    def note(message: Warning | str, *_: object, **__: object) -> None:
        if threading.get_ident() == thread and SYNCHRONISED in str(message):
            noted.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield noted
        finally:
            torch.cuda.set_sync_debug_mode(mode)


class GraphedSteps:
    """Takes steps, and captures those whose shape comes back and which never wait for the GPU."""

    def __init__(self, gradient: Gradient, parameters: Sequence[nn.Parameter]) -> None:
        self.gradient, self.parameters = gradient, parameters
        self.graphs: dict[Key, CapturedStep] = {}
        self.met: dict[Key, int] = {}
        self.waiting: set[Key] = set()  # shapes whose steps wait for the GPU
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle()
        warnings.filterwarnings("ignore", SYNCHRONISED)  # another thread's may come after `synchronisations`

    def take(self, batch: Batch, step: int) -> Loss:
        """The loss, its gradients left with the parameters; batches of another class have a loss of another form."""
        key = type(batch), tuple(tensor.shape for tensor in tensors_of(batch))
        known = self.graphs.get(key)
        if known is None:
            self.met[key] = self.met.get(key, 0) + 1
            if self.met[key] == WARM_UP_STEPS:
                with synchronisations() as noted:
                    result = self._as_usual(batch, step)
                if noted:
                    self.waiting.add(key)
                return result
            if self.met[key] < WARM_UP_STEPS or key in self.waiting or len(self.graphs) >= MAX_GRAPHS:
                return self._as_usual(batch, step)
            known = self.graphs[key] = self._capture(batch, step)
        for held, given in zip(known.inputs, tensors_of(batch), strict=True):
            held.copy_(given)
        known.graph.replay()
        for parameter, gradient in zip(self.parameters, known.gradients, strict=True):
            parameter.grad = gradient
        return known.loss, known.figures

    def _as_usual(self, batch: Batch, step: int) -> Loss:
        """On the stream that will capture: what autograd remembers of streams must fit."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.gradient(batch, step)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def _capture(self, batch: Batch, step: int) -> CapturedStep:
        inputs = [tensor.clone() for tensor in tensors_of(batch)]
        for parameter in self.parameters:
            parameter.grad = None  # a gradient that is made inside belongs to the graph
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:  # relaxed: other threads may go on with their work meanwhile
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="relaxed"):
                loss, figures = self.gradient(with_tensors(batch, inputs), step)
        except RuntimeError as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise SaccadeError(
                f"step {step + 1} could not be captured as a CUDA graph ({first}): cuda_graphs=false does without"
            ) from error
        return CapturedStep(graph, inputs, loss.detach(), figures, [parameter.grad for parameter in self.parameters])
