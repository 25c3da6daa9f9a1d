// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/shipped_maps.h"

namespace ddp::ckpt {
namespace {

// GPT-2's linear layers ("Conv1D") multiply inputs from the left, so their matrices are [in, out],
// and ours [out, in].
constexpr std::string_view kGpt2 = R"(
# GPT2LMHeadModel and GPT2Model of transformers, for the model gpt.
prefix transformer.
prefix module.transformer.
wte.weight               -> tokens.weight
lm_head.weight           -> tokens.weight               # tied: the same values
module.lm_head.weight    -> tokens.weight
wpe.weight               -> positions.weight
h.*.ln_1.*               -> blocks.*.norm1.*
h.*.attn.c_attn.weight   -> blocks.*.qkv.weight         transpose
h.*.attn.c_attn.bias     -> blocks.*.qkv.bias
h.*.attn.c_proj.weight   -> blocks.*.projection.weight  transpose
h.*.attn.c_proj.bias     -> blocks.*.projection.bias
h.*.ln_2.*               -> blocks.*.norm2.*
h.*.mlp.c_fc.weight      -> blocks.*.expand.weight      transpose
h.*.mlp.c_fc.bias        -> blocks.*.expand.bias
h.*.mlp.c_proj.weight    -> blocks.*.contract.weight    transpose
h.*.mlp.c_proj.bias      -> blocks.*.contract.bias
ln_f.*                   -> norm.*
h.*.attn.bias            -> -                           # causal mask of old releases
h.*.attn.masked_bias     -> -
)";

// The models resnet18 and resnet50 have torchvision's names.
constexpr std::string_view kTorchvisionResnet = R"(
# resnet18 and resnet50 of torchvision, also as saved from DistributedDataParallel.
prefix module.
)";

}  // namespace

std::optional<std::string_view> shipped_map(std::string_view name) {
  if (name == "gpt2") return kGpt2;
  if (name == "torchvision-resnet") return kTorchvisionResnet;
  return std::nullopt;
}

std::string shipped_map_names() {
  return "gpt2 and torchvision-resnet";
}

}  // namespace ddp::ckpt
