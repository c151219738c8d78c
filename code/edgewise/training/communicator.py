"""What training processes tell each other, and the case of a single process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

Result = TypeVar("Result")


class LocalCommunicator:
    """A single training process.

    The interface of :class:`~edgewise.training.distributed.DistributedCommunicator`.

    Every method but :meth:`wrap` is called by all processes, in the same order.

    Attributes
    ----------
    rank, size : int
        Which process this is, and how many there are.
    launcher : tuple of str
        The command that started the processes, before the program's name; empty for one process.
    """

    rank, size = 0, 1
    launcher: tuple[str, ...] = ()

    def wrap(self, module: nn.Module) -> Callable[..., Any]:
        """Return a callable that runs ``module`` on a share of a batch; gradients are means over processes.

        It takes the module's arguments and ``sync``: whether the backward pass exchanges gradients, or only
        accumulates them here.
        """
        return lambda *arguments, sync: module(*arguments)

    def backward(self, total: Tensor) -> None:
        """Compute gradients."""
        total.backward()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each of several numbers over the processes."""
        return list(values)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's tensor, in order of rank; all are of one shape and type, on the CPU."""
        return [tensor]

    def broadcast(self, compute: Callable[[], Result]) -> Result:
        """Compute something JSON-serialisable in the first process and broadcast it."""
        return compute()

    def seed_by_rank(self, seed: int) -> None:
        """Give each process random numbers of its own; the first keeps its generator's state."""

    def assert_same(self, facts: Mapping[str, Any]) -> None:
        """Check that all processes have the same facts.

        Parameters
        ----------
        facts : mapping
            This process's settings, JSON.

        Raises
        ------
        MismatchError
            If another process's facts differ; names the first difference.
        """

    def reports_errors(self) -> bool:
        """Whether this process should report an error."""
        return True


LOCAL = LocalCommunicator()
