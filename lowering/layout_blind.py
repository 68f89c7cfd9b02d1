"""TEMPORARY (lead): replaced by the generated list."""
import torch
from torch._ops import OpOverload
F={"aten."+n for n in "reshape.default permute.default transpose.int t.default expand.default unsqueeze.default squeeze.dim squeeze.dims slice.Tensor select.int alias.default detach.default".split()}
B={"aten."+n for n in "mm.default bmm.default addmm.default cat.default sum.dim_IntList mean.dim amax.default _softmax.default _to_copy.default embedding.default clone.default var_mean.correction index.Tensor".split()}|{"prims.convert_element_type.default"}
def is_layout_following(t): return str(t) in F
def is_layout_blind(t): return isinstance(t,OpOverload) and (torch.Tag.pointwise in t.tags or str(t) in B)
