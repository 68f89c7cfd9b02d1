"""What tells equal values apart that were computed differently, however the graph was written."""

from __future__ import annotations

from hashlib import blake2b

from torch.fx.node import map_arg

from lowering.read import Reading


class Structure:
    """Digests of how values are computed: by operators, numbers and positions of inputs."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._digests: dict[int, bytes] = {}
        inputs = [node for node in reading.nodes if node.op == "placeholder"]
        self._positions = {node: position for position, node in enumerate(inputs)}

    def of(self, number: int) -> int:
        """A number that is the same for the same computation, to put alternatives in order."""
        stack = [number]
        while stack:
            at = stack[-1]
            missing = [
                operand
                for operand in self._reading.values[at].operands
                if operand not in self._digests
            ]
            if missing:
                stack += missing
            else:
                stack.pop()
                self._digests[at] = self._digest(at)
        return int.from_bytes(self._digests[number][:8], "big")

    def _digest(self, number: int) -> bytes:
        value = self._reading.values[number]
        node = value.nodes[0]
        if value.term is not None:
            expression = self._reading.bounds.expression
            what = f"{value.term.op} {[*map(expression, value.term.params)]}"
        elif node.op == "call_function":
            what = f"{value.signature.name} {map_arg((node.args, node.kwargs), lambda _: None)}"
        else:
            what = f"{node.op} {self._positions.get(node, node.target)}"
        parts = [self._digests[operand] for operand in value.operands]
        return blake2b(b"".join([what.encode(), *parts]), digest_size=16).digest()
