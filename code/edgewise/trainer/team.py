"""What a run asks of the processes that share its work; here the answers of one that works alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor, nn

Result = TypeVar("Result")


class Alone:
    """One process that trains by itself; the interface of :class:`edgewise.distributed.Team`.

    Every method but :meth:`wrap` is called by all processes of a team, in the same order.

    Attributes
    ----------
    rank, size : int
        Which process this is, and how many there are.
    command : sequence of str
        How the program is started; its own words follow.
    """

    rank, size = 0, 1
    command = ("edgewise",)

    def wrap(self, module: nn.Module) -> Callable[..., Any]:
        """Return what runs ``module`` on a share of a batch; gradients are then means over the processes.

        It takes the module's arguments and ``sync``: whether gradients are exchanged in the backward pass, or
        only added up here.
        """
        return lambda *arguments, sync: module(*arguments)

    def backward(self, total: Tensor) -> None:
        """Work out gradients."""
        total.backward()

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up each of several numbers over the processes."""
        return list(values)

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return every process's tensor, in order of rank; all are of one shape and type, on the CPU."""
        return [tensor]

    def ask_first(self, compute: Callable[[], Result]) -> Result:
        """Let the first process work something out, of which JSON can be made, and tell the others."""
        return compute()

    def part_ways(self, seed: int) -> None:
        """Give each process random numbers of its own; the first keeps those it has."""

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Check that all processes would do the same.

        Parameters
        ----------
        facts : mapping
            What this one would do, JSON.

        Raises
        ------
        DisagreementError
            If another one's facts differ; names the first difference.
        """

    def speaks(self) -> bool:
        """Say whether this process is the one to report an error that it meets."""
        return True


ALONE = Alone()
