"""FX graphs as JSON, so that graphs captured under one torch version replay under another.

A graph is `{"info", "syms", "nodes", "sub"}`. `info` is free text by key. `syms` gives each size
symbol its range and the value that it was traced with. A node is `{"name", "op", "target", "args",
"kwargs"}` and, where the node's `meta` has one, `"val"`. `sub` holds what get_attr nodes name:
tensors and graphs.

Arguments are JSON's own values where they can be, else an object of one key:
`{"n": name}` a node, `{"t": [..]}` a tuple, `{"d": [[key, value], ..]}` a dict, `{"f": "nan"}` a
float that JSON lacks, `{"c": [real, imaginary]}`, `{"slice": [start, stop, step]}`, `{"op": name}`
an overload, and torch's constants by name: `{"dtype"}`, `{"device"}`, `{"layout"}`, `{"mf"}` (a
memory format).

A val is `{"shape", "stride", "offset", "dtype", "device", "st"}` for a tensor, where tensors with
one `st` share a storage; `{"s": expression}` for a symbolic int (in shapes and strides too); a list
for several.
"""

from __future__ import annotations

import gzip
import json
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, fx
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from tests.lowering import models as models  # registers the custom ops that graphs name

Json = Any
Graph = dict[str, Json]

# The modules whose functions stand in graphs beside operators.
_FUNCTIONS: dict[str, object] = {"_operator": operator, "math": math, "torch": torch}

_SYMBOLIC = (torch.SymInt, torch.SymBool)


class Loaded(NamedTuple):
    """A graph that was read: every node has its `meta["val"]`, and the module runs."""

    graph: fx.Graph
    module: fx.GraphModule
    fake_mode: FakeTensorMode
    info: dict[str, str]


def save(graph: fx.Graph, path: Path, info: Mapping[str, str] | None = None) -> None:
    """Write a graph as compressed JSON; the same graph gives the same bytes."""
    text = json.dumps(dump(graph, info), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def load(source: Path | Graph) -> Loaded:
    """Read a graph from a file that `save` wrote, or from what `dump` returned.

    Vals are computed by running the graph on fake tensors, so pieces alias what they're pieces of.

    Raises:
        ValueError: a val comes out otherwise than it was written.
    """
    data: Graph = (
        json.loads(gzip.decompress(source.read_bytes())) if isinstance(source, Path) else source
    )
    environment = ShapeEnv()
    fake_mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    symbols = {name: _symbol(environment, name, row) for name, row in data["syms"].items()}
    module = _Reader(fake_mode, symbols).read(data)
    written, read = data["nodes"], dump(module.graph)["nodes"]
    for old, new in zip(written, read, strict=True):
        if old != new:
            raise ValueError(f"{old['name']} was written as {old} and is read as {new}")
    return Loaded(module.graph, module, fake_mode, data["info"])


def dump(graph: fx.Graph, info: Mapping[str, str] | None = None) -> Graph:
    """Return a graph as JSON values.

    Raises:
        TypeError: a node has an argument, a target or a val that there's no form for.
    """
    storages: dict[int, int] = {}
    nodes = []
    for node in graph.nodes:
        row = {
            "name": node.name,
            "op": node.op,
            "target": _target(node.target),
            "args": [_argument(arg) for arg in node.args],
            "kwargs": {key: _argument(arg) for key, arg in node.kwargs.items()},
        }
        if "val" in node.meta:
            row["val"] = _val(node.meta["val"], storages)
        nodes.append(row)
    return {"info": dict(info or {}), "syms": _symbols(graph), "nodes": nodes, "sub": _subs(graph)}


# Writing ----------------------------------------------------------------------------------------


def _target(target: Any) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, OpOverload):
        return str(target)
    module, name = target.__module__, target.__name__
    if getattr(_FUNCTIONS.get(module), name, None) is not target:
        raise TypeError(f"a target that there's no form for: {target}")
    return f"{module}.{name}"


_TORCH_CONSTANTS: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "mf",
    OpOverload: "op",
}

_ARGUMENTS: dict[type, Callable[[Any], Json]] = {
    type(None): lambda none: None,
    bool: lambda value: value,
    int: lambda value: value,
    str: lambda value: value,
    float: lambda value: value if math.isfinite(value) else {"f": repr(value)},
    complex: lambda value: {"c": [value.real, value.imag]},
    list: lambda items: [_argument(item) for item in items],
    tuple: lambda items: {"t": [_argument(item) for item in items]},
    dict: lambda items: {"d": [[_argument(k), _argument(v)] for k, v in items.items()]},
    slice: lambda s: {"slice": [_argument(s.start), _argument(s.stop), _argument(s.step)]},
    fx.Node: lambda node: {"n": node.name},
}


def _argument(argument: Any) -> Json:
    for kind, key in _TORCH_CONSTANTS.items():
        if isinstance(argument, kind):
            return {key: str(argument)}
    for kind, write in _ARGUMENTS.items():
        if isinstance(argument, kind):
            return write(argument)
    raise TypeError(f"an argument of a kind that there's no form for: {argument!r}")


def _val(val: Any, storages: dict[int, int]) -> Json:
    if isinstance(val, Tensor):
        storage = val.untyped_storage()._cdata
        return {
            "shape": [_val(size, storages) for size in val.shape],
            "stride": [_val(stride, storages) for stride in val.stride()],
            "offset": _val(val.storage_offset(), storages),
            "dtype": str(val.dtype),
            "device": str(val.device),
            "st": storages.setdefault(storage, len(storages)),
        }
    if isinstance(val, _SYMBOLIC):
        return {"s": str(val.node.expr)}
    if isinstance(val, list | tuple):
        return [_val(item, storages) for item in val]
    if val is None or isinstance(val, bool | int | float):
        return _argument(val)
    raise TypeError(f"a val of a kind that there's no form for: {val!r}")


def _symbols(graph: fx.Graph) -> dict[str, Json]:
    environments = [value.node.shape_env for value in _symbolic_values(graph)]
    if not environments:
        return {}
    environment = environments[0]
    return {
        str(symbol): {
            "lo": str(environment.var_to_range[symbol].lower),
            "hi": str(environment.var_to_range[symbol].upper),
            "hint": int(value),
        }
        for symbol, value in environment.backed_var_to_val.items()
        if symbol.is_integer
    }


def _symbolic_values(graph: fx.Graph) -> Iterator[Any]:
    for node in graph.nodes:
        val = node.meta.get("val")
        for item in val if isinstance(val, list | tuple) else (val,):
            values = (*item.shape, *item.stride()) if isinstance(item, Tensor) else (item,)
            yield from (value for value in values if isinstance(value, _SYMBOLIC))


def _subs(graph: fx.Graph) -> dict[str, Json]:
    return {
        node.target: _sub(operator.attrgetter(node.target)(graph.owning_module))
        for node in graph.find_nodes(op="get_attr")
    }


def _sub(attribute: object) -> Json:
    if isinstance(attribute, fx.GraphModule):
        return dump(attribute.graph)
    if isinstance(attribute, Tensor):
        return {"tensor": attribute.tolist(), "dtype": str(attribute.dtype)}
    raise TypeError(f"an attribute of a kind that there's no form for: {type(attribute).__name__}")


# Reading ----------------------------------------------------------------------------------------


def _resolve(name: str) -> Any:
    """Return the overload, the higher-order operator or the function of this name."""
    root, _, path = name.partition(".")
    return operator.attrgetter(path)(_FUNCTIONS.get(root) or getattr(torch.ops, root))


def _symbol(environment: ShapeEnv, name: str, row: Json) -> object:
    symbol = sympy.Symbol(name, positive=True, integer=True)
    environment.add_backed_var_to_val(symbol, row["hint"])
    environment.var_to_range[symbol] = ValueRanges(_bound(row["lo"]), _bound(row["hi"]))
    return environment.create_symintnode(symbol, hint=row["hint"])


def _bound(text: str) -> Any:
    return {"int_oo": int_oo, "-int_oo": -int_oo}.get(text) or int(text)


def _constant(name: str) -> Any:
    """Return the dtype, layout or memory format of this name."""
    return getattr(torch, name.removeprefix("torch."))


class _Reader:
    """Builds graphs whose vals are in one fake tensor mode."""

    def __init__(self, fake_mode: FakeTensorMode, symbols: Mapping[str, object]) -> None:
        self.fake_mode = fake_mode
        self.symbols = symbols
        self.storages: dict[int, Tensor] = {}
        self.nodes: dict[str, fx.Node] = {}

    def read(self, data: Graph) -> fx.GraphModule:
        graph = fx.Graph()
        for row in data["nodes"]:
            target = row["target"]
            self.nodes[row["name"]] = graph.create_node(
                row["op"],
                _resolve(target) if row["op"] == "call_function" else target,
                tuple(self._argument(arg) for arg in row["args"]),
                {key: self._argument(arg) for key, arg in row["kwargs"].items()},
                name=row["name"],
            )
        root = {name: self._sub(sub) for name, sub in data["sub"].items()}
        module = fx.GraphModule(root, graph)
        inputs = [self._val(row["val"]) for row in data["nodes"] if row["op"] == "placeholder"]
        with enable_python_dispatcher(), torch.no_grad():
            FakeTensorProp(module, mode=self.fake_mode).propagate_dont_convert_inputs(*inputs)
        for row in data["nodes"]:
            if "val" not in row:
                self.nodes[row["name"]].meta.pop("val", None)
        return module

    def _expression(self, text: str) -> Any:
        # Evaluated on symbolic ints, whose `//` and `%` are torch's own; sympy's parser has others.
        functions = {"Max": torch.sym_max, "Min": torch.sym_min, "Mod": operator.mod}
        return eval(text, {"__builtins__": {}}, {**functions, **self.symbols})

    def _val(self, val: Json) -> Any:
        if not isinstance(val, dict):
            return val
        if "s" in val:
            return self._expression(val["s"])
        with self.fake_mode:
            return self._tensor(val)

    def _tensor(self, val: Json) -> Tensor:
        shape, stride = ([self._val(item) for item in val[key]] for key in ("shape", "stride"))
        dtype = _constant(val["dtype"])
        fresh = torch.empty_strided(shape, stride, dtype=dtype, device=val["device"])
        if val["offset"] == 0 and val["st"] not in self.storages:
            self.storages[val["st"]] = fresh
            return fresh
        base = self.storages.setdefault(val["st"], fresh)
        return torch.empty(0, dtype=dtype, device=val["device"]).set_(
            base.untyped_storage(), self._val(val["offset"]), shape, stride
        )

    def _sub(self, sub: Json) -> torch.nn.Module | Tensor:
        if "nodes" in sub:
            return _Reader(self.fake_mode, self.symbols).read(sub)
        return torch.tensor(sub["tensor"], dtype=_constant(sub["dtype"]))

    def _argument(self, argument: Json) -> Any:
        if isinstance(argument, list):
            return [self._argument(item) for item in argument]
        if not isinstance(argument, dict):
            return argument
        ((key, value),) = argument.items()
        return self._OBJECTS[key](self, value)

    _OBJECTS: Mapping[str, Callable[[_Reader, Any], Any]] = {
        "n": lambda self, name: self.nodes[name],
        "t": lambda self, items: tuple(self._argument(item) for item in items),
        "d": lambda self, items: {self._argument(k): self._argument(v) for k, v in items},
        "f": lambda self, text: float(text),
        "c": lambda self, parts: complex(*parts),
        "slice": lambda self, parts: slice(*map(self._argument, parts)),
        "dtype": lambda self, name: _constant(name),
        "layout": lambda self, name: _constant(name),
        "mf": lambda self, name: _constant(name),
        "device": lambda self, name: torch.device(name),
        "op": lambda self, name: _resolve(name),
    }
