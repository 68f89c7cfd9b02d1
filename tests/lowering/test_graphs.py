"""capture, and the JSON form that captured graphs are kept in."""

from __future__ import annotations

import json
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensor

from lowering.graphs import capture
from tests.lowering import fxjson
from tests.lowering.make_data import DATA
from tests.lowering.models import EXAMPLES, Example, bind
from tests.lowering.sweeps import every

CAPTURED = tuple(
    EXAMPLES[name]
    for name in (
        "case_7",
        "attention_qvk_mixture_inplace",
        "attention_qkv_split_op",
        "attention_vqk_split_op_v1",
        "attention_qkv_split_op_attend_op",
        "swiglu_any_width_half_negative_slices",
    )
)
SLOTS = ("pre", "post")
FILES = sorted(DATA.glob("*/*.json.gz"))
VERSIONS = sorted({path.parent.name for path in FILES})
RUNNING = torch.__version__.split("+")[0]


def whole_again(x: Tensor) -> Tensor:
    """Inductor's own passes see that this cat is x."""
    return torch.cat(x.split([8, 8], -1), -1).sin()


def viewed(x: Tensor) -> Tensor:
    return x.view(-1, 8).sin()


def targets(graph: fx.Graph) -> list[str]:
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def outputs(function: object, *inputs: object) -> tuple[object, ...]:
    results = function(*inputs)  # type: ignore[operator]
    return tuple(results) if isinstance(results, list | tuple) else (results,)


def configs() -> list[dict[str, object]]:
    modules = (torch._inductor.config, torch._functorch.config, torch._dynamo.config)
    return [module.get_config_copy() for module in modules]


def code(modules: list[fx.GraphModule]) -> list[str]:
    return [module.code for module in modules]


# What the graphs are ----------------------------------------------------------------------------


def test_slots_are_before_and_after_inductors_own_passes():
    x = torch.randn(5, 16)
    (before,) = capture(whole_again, x, slot="pre")
    (after,) = capture(whole_again, x, slot="post")
    assert "aten.cat.default" in targets(before.graph)
    assert "aten.cat.default" not in targets(after.graph)


class Stopped(Exception):
    """Raised by a pass, so that a real compile ends where capture does."""


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [whole_again, viewed, EXAMPLES["case_7"].function])
def test_graph_is_the_one_that_a_configured_pass_gets(function, dynamic, slot):
    seen = []

    def record(graph: fx.Graph) -> None:
        seen.append(str(graph))
        raise Stopped

    torch._dynamo.reset()
    x = torch.randn(5, 16)
    options = {f"post_grad_custom_{slot}_pass": record}
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="Stopped"):
        torch.compile(function, dynamic=dynamic, options=options)(x)
    assert seen == [str(m.graph) for m in capture(function, x, slot=slot, dynamic=dynamic)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("example", every(2, CAPTURED), ids=attrgetter("name"))
def test_captured_graph_runs_as_eager(example: Example, dynamic: bool):
    module = example.capture(dynamic=dynamic)
    results = outputs(module, *bind(module.graph, example.inputs()))
    torch.testing.assert_close(results, outputs(example.function, *example.inputs()))


def test_captured_graph_runs_with_other_sizes():
    module = EXAMPLES["case_7"].capture(dynamic=True)
    x = torch.randn(9, 16)
    results = outputs(module, *bind(module.graph, [x]))
    torch.testing.assert_close(results, outputs(EXAMPLES["case_7"].function, x))


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_every_node_has_its_val_in_one_fake_mode(slot, dynamic):
    graph = EXAMPLES["attention_qkv_split_inplace"].capture(slot, dynamic).graph
    nodes = [node for node in graph.nodes if node.op != "output"]
    assert all("val" in node.meta for node in nodes)
    vals = [node.meta["val"] for node in nodes if isinstance(node.meta["val"], Tensor)]
    assert all(isinstance(val, FakeTensor) for val in vals)
    assert len({id(val.fake_mode) for val in vals}) == 1
    assert any(isinstance(size, torch.SymInt) for val in vals for size in val.shape) == dynamic
    assert all(node.stack_trace for node in nodes if "mm" in node.name)


def test_changing_a_captured_graph_changes_no_other():
    first, second = (EXAMPLES["case_7"].capture() for _ in range(2))
    before = second.code
    for node in reversed(first.graph.nodes):
        node.args = ()
        node.meta.clear()
        first.graph.erase_node(node)
    second.recompile()
    assert second.code == before
    assert all(node.meta for node in second.graph.nodes)


def test_subgraphs_come_before_the_graph_that_holds_them():
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    x = torch.randn(3)
    on_true, on_false, whole = capture(function, x)
    assert targets(on_true.graph) == ["aten.sin.default"]
    assert targets(on_false.graph) == ["aten.cos.default"]
    assert targets(whole.true_graph_0.graph) == ["aten.sin.default"]
    assert whole.true_graph_0 is not on_true
    torch.testing.assert_close(outputs(whole, x), outputs(function, x))


def test_what_runs_is_the_traced_graph_not_what_inductor_made_of_it(monkeypatch):
    from torch._inductor import compile_fx

    passes = compile_fx._recursive_post_grad_passes

    def lowered(*args: object, **kwargs: object) -> None:
        raise AssertionError("only Inductor can run this")

    def lower(module: fx.GraphModule, is_inference: bool) -> None:
        passes(module, is_inference)
        graphs = [part for part in module.modules() if isinstance(part, fx.GraphModule)]
        if len(graphs) == 1:
            return  # one of the subgraphs, which the passes of the whole still have to read
        for graph in graphs:
            for node in graph.graph.nodes:
                if node.op == "call_function":
                    node.target = lowered
            graph.recompile()

    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x.exp(),))

    monkeypatch.setattr(compile_fx, "_recursive_post_grad_passes", lower)
    assert len(capture(function, torch.randn(3))) == 3


def test_a_graph_break_gives_two_graphs():
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    first, second = capture(function, torch.randn(3))
    assert targets(first.graph) == ["aten.sin.default"]
    assert targets(second.graph) == ["aten.cos.default"]


# Training ---------------------------------------------------------------------------------------


def sliced(x: Tensor) -> Tensor:
    y = x.sin()
    return y[:, :8] * y[:, 8:]


def test_training_gives_the_forward_and_the_backward_graph():
    x = torch.randn(5, 16, requires_grad=True)
    forward, backward = capture(sliced, x)
    result, *saved = outputs(forward, x.detach())
    torch.testing.assert_close(result, sliced(x.detach()))
    tangent = torch.randn(5, 8)
    (gradient,) = torch.autograd.grad(sliced(x), x, tangent)
    torch.testing.assert_close(outputs(backward, *saved, tangent), (gradient,))
    assert x.grad is None


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_of_a_module_reaches_its_parameters_and_leaves_no_gradient(dynamic):
    module = torch.nn.Linear(4, 2)
    graphs = capture(module, torch.randn(3, 4), dynamic=dynamic)
    assert len(graphs) == 2
    assert len(capture(lambda x: module(x), torch.randn(3, 4), dynamic=dynamic)) == 2
    assert all(parameter.grad is None for parameter in module.parameters())
    with torch.no_grad():
        assert len(capture(module, torch.randn(3, 4), dynamic=dynamic)) == 1


def test_the_graph_behind_an_input_can_still_be_differentiated():
    leaf = torch.randn(5, 16, requires_grad=True)
    x = leaf.exp()
    assert len(capture(sliced, x)) == 2
    x.sum().backward()
    torch.testing.assert_close(leaf.grad, leaf.exp())


# Errors -----------------------------------------------------------------------------------------


def test_an_unknown_slot_is_refused():
    with pytest.raises(ValueError, match="slot must be 'pre' or 'post', not 'joint'"):
        capture(whole_again, torch.randn(5, 16), slot="joint")  # type: ignore[arg-type]


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="fn must be a function or a module, not Tensor"):
        capture(torch.randn(5, 16))  # type: ignore[arg-type]


def test_no_graph_is_an_error():
    with pytest.raises(RuntimeError, match="fn calls no operator"):
        capture(lambda x: x, torch.randn(3))
    with (
        torch._dynamo.config.patch(disable=True),
        pytest.raises(RuntimeError, match="compiling is disabled"),
    ):
        capture(whole_again, torch.randn(5, 16))


def test_errors_of_the_function_come_through_and_leave_the_config_as_it_was():
    def function(x: Tensor) -> Tensor:
        return x @ x

    with torch._dynamo.config.patch(suppress_errors=True):
        before = configs()
        with pytest.raises(RuntimeError, match="size"):
            capture(function, torch.randn(2, 3))
        assert configs() == before


# The process around it --------------------------------------------------------------------------


def test_other_passes_neither_run_nor_are_lost():
    def refuse(graph: fx.Graph) -> None:
        raise AssertionError("a pass of the user's ran")

    plain = code([EXAMPLES["case_7"].capture()])
    hooks = [f"{stage}_custom_{when}_pass" for stage in ("joint", "post_grad") for when in SLOTS]
    with torch._inductor.config.patch(dict.fromkeys(("pre_grad_custom_pass", *hooks), refuse)):
        before = configs()
        assert code([EXAMPLES["case_7"].capture()]) == plain
        x = torch.randn(5, 16, requires_grad=True)
        assert len(capture(sliced, x)) == 2
        assert configs() == before


def test_a_function_can_be_captured_more_often_than_it_may_be_recompiled():
    x = torch.randn(5, 16)
    first = code(capture(whole_again, x))
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        assert code(capture(whole_again, x)) == first


def test_a_function_can_be_captured_that_was_compiled_too_often():
    x = torch.randn(5, 16)
    torch._dynamo.reset()
    for _ in range(torch._dynamo.config.recompile_limit + 1):
        torch.compile(whole_again, backend=lambda module, examples: module.forward)(x)
    assert len(capture(whole_again, x)) == 1


def test_no_compiled_code_is_left_on_the_function():
    capture(whole_again, torch.randn(5, 16))
    entries = torch._dynamo.eval_frame._debug_get_cache_entry_list(whole_again.__code__)
    assert entries == []


def test_no_cache_of_compiled_graphs_is_used():
    torch._dynamo.utils.counters.clear()
    for _ in range(2):
        capture(whole_again, torch.randn(5, 16))
    counters = torch._dynamo.utils.counters
    counted = [key for group in ("aot_autograd", "inductor") for key in counters[group]]
    assert "total" in counted
    assert [key for key in counted if "cache" in key] == []


# As JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("example", every(2, CAPTURED), ids=attrgetter("name"))
def test_round_trip_keeps_structure_vals_and_aliasing(example: Example, dynamic: bool):
    module = example.capture(dynamic=dynamic)
    data = fxjson.dump(module.graph, {"example": example.name})
    loaded = fxjson.load(json.loads(json.dumps(data)))
    assert loaded.module.code == module.code
    assert loaded.info == {"example": example.name}
    assert fxjson.dump(loaded.graph, loaded.info) == data
    for old, new in zip(module.graph.nodes, loaded.graph.nodes, strict=True):
        assert str(old.meta.get("val")) == str(new.meta.get("val"))


def test_round_trip_of_subgraphs_and_constants():
    def function(x: Tensor) -> Tensor:
        y = x + torch.tensor([1.0, float("inf"), -0.0])
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))

    x = torch.randn(3)
    module = capture(function, x)[-1]
    loaded = fxjson.load(json.loads(json.dumps(fxjson.dump(module.graph))))
    torch.testing.assert_close(
        outputs(loaded.module, x), outputs(function, x), rtol=0, atol=0, equal_nan=True
    )


def test_pieces_alias_their_source_after_loading():
    graph = fxjson.load(fxjson.dump(EXAMPLES["qkv_split"].capture().graph)).graph
    by_name = {node.name: node.meta["val"] for node in graph.nodes if "val" in node.meta}
    source = by_name["mm"].untyped_storage()._cdata
    assert by_name["getitem"].untyped_storage()._cdata == source
    assert by_name["getitem_1"].storage_offset() == 8


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path):
    for name in ("first", "second"):
        fxjson.save(EXAMPLES["case_7"].capture().graph, tmp_path / name)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    assert fxjson.load(tmp_path / "first").graph


def test_what_has_no_form_is_refused():
    graph = fx.Graph()
    graph.output(graph.call_function(lambda: None))
    with pytest.raises(TypeError, match="target that there's no form for"):
        fxjson.dump(graph)
    graph = fx.Graph()
    graph.output(graph.call_function(torch.ops.aten.sin.default, (object(),)))
    with pytest.raises(TypeError, match="argument of a kind"):
        fxjson.dump(graph)


def test_a_val_that_comes_out_otherwise_is_refused():
    data = fxjson.dump(EXAMPLES["case_7"].capture().graph)
    data["nodes"][1]["val"]["stride"] = [1, 5]
    with pytest.raises(ValueError, match="mul was written as"):
        fxjson.load(data)


# The data that is kept --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", every(5, FILES), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_kept_graph_loads_and_runs_as_eager(path: Path):
    loaded = fxjson.load(path)
    example = EXAMPLES[loaded.info["example"]]
    results = outputs(loaded.module, *bind(loaded.graph, example.inputs()))
    torch.testing.assert_close(results, outputs(example.function, *example.inputs()))
    assert loaded.info["torch"].startswith(path.parent.name)


def test_each_version_has_the_same_files():
    assert VERSIONS == ["2.13.0", "2.15.0"]
    old, new = ({p.name for p in FILES if p.parent.name == version} for version in VERSIONS)
    assert old == new


@pytest.mark.parametrize(
    ("version", "splits", "slices"), [("2.13.0", 5, 0), ("2.15.0", 1, 4)], ids=VERSIONS
)
def test_versions_differ_in_how_pieces_are_read_again_after_a_write(version, splits, slices):
    counts = Counter(targets(fxjson.load(DATA / version / "case_7.json.gz").graph))
    assert counts["aten.split_with_sizes.default"] == splits
    assert counts["aten.slice.Tensor"] == slices
    assert counts["aten.slice_scatter.default"] == 2


@pytest.mark.skipif(RUNNING not in VERSIONS, reason="no graphs are kept of this torch")
@pytest.mark.parametrize("example", CAPTURED[:4], ids=attrgetter("name"))
def test_kept_graph_is_what_is_captured_now(example: Example):
    kept = fxjson.load(DATA / RUNNING / f"{example.name}.json.gz")
    assert kept.module.code == example.capture().code
