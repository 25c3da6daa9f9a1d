// SPDX-License-Identifier: Apache-2.0
#include "bench/staged_model.h"

#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "ddp_runtime/parallel/buckets/split_backward.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::bench {
namespace {

torch::nn::LayerNorm layer_norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

// A block of gpt, as in ddp_runtime/models/gpt.cpp.
struct StagedBlock final : torch::nn::Module {
  StagedBlock(std::int64_t width, std::int64_t its_heads)
      : heads(its_heads),
        norm1(register_module("norm1", layer_norm(width))),
        norm2(register_module("norm2", layer_norm(width))),
        qkv(register_module("qkv", SplitLinear(width, 3 * width))),
        projection(register_module("projection", SplitLinear(width, width))),
        expand(register_module("expand", SplitLinear(width, 4 * width))),
        contract(register_module("contract", SplitLinear(4 * width, width))) {}

  // x [n, t, w]
  torch::Tensor forward(const torch::Tensor& x) {
    const auto n = x.size(0);
    const auto t = x.size(1);
    const auto w = x.size(2);
    const auto parts = qkv(norm1(x)).view({n, t, 3, heads, w / heads}).permute({2, 0, 3, 1, 4});
    const auto of = parts.unbind();
    const auto mixed = torch_compat::causal_attention(of[0], of[1], of[2]);
    const auto y = x + projection(mixed.transpose(1, 2).reshape({n, t, w}));
    return y + contract(torch::gelu(expand(norm2(y)), "tanh"));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::LayerNorm norm2;
  SplitLinear qkv;
  SplitLinear projection;
  SplitLinear expand;
  SplitLinear contract;
};

struct GptStage final : torch::nn::Module {
  GptStage(const models::ModelOptions& model, std::int64_t blocks_of_stage, bool first, bool last) {
    if (first) {
      tokens = register_module("tokens", torch::nn::Embedding(model.classes, model.width));
      positions = register_module("positions", torch::nn::Embedding(model.input[0], model.width));
      torch::nn::init::normal_(tokens->weight, 0, 0.02);
    }
    for (std::int64_t i = 0; i < blocks_of_stage; ++i) {
      blocks.push_back(register_module(fmt::format("block{}", i),
                                       std::make_shared<StagedBlock>(model.width, model.heads)));
    }
    if (!last) return;
    norm = register_module("norm", layer_norm(model.width));
    head = register_module(
        "head", SplitLinear(torch::nn::LinearOptions(model.width, model.classes).bias(false)));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    auto x = input;
    if (tokens) x = tokens(input) + positions->weight.slice(0, 0, input.size(1));
    for (const auto& block : blocks) x = block->forward(x);
    return head ? head(norm(x)) : x;
  }

  torch::nn::Embedding tokens{nullptr};
  torch::nn::Embedding positions{nullptr};
  std::vector<std::shared_ptr<StagedBlock>> blocks;
  torch::nn::LayerNorm norm{nullptr};
  SplitLinear head{nullptr};
};

torch::nn::Sequential mlp_stage(const models::ModelOptions& model, std::int64_t layers,
                                bool is_last) {
  torch::nn::Sequential stage;
  for (std::int64_t i = 0; i < layers; ++i) {
    stage->push_back(SplitLinear(model.width, model.width));
    stage->push_back(torch::nn::ReLU());
  }
  if (is_last) stage->push_back(SplitLinear(model.width, model.classes));
  return stage;
}

}  // namespace

pipeline::Stage make_bench_stage(const models::ModelOptions& model, int number, int stages) {
  if (model.name != "mlp" && model.name != "gpt") {
    throw UsageError(fmt::format("the benchmark cuts mlp and gpt into stages, not {}", model.name));
  }
  if (model.layers % stages != 0) {
    throw UsageError(
        fmt::format("{} layers cannot be divided among {} equal stages; choose --layers",
                    model.layers, stages));
  }
  const auto layers = model.layers / stages;
  const bool is_last = number == stages - 1;
  torch::manual_seed(static_cast<std::uint64_t>(number));
  if (model.name == "mlp") return pipeline::make_stage(mlp_stage(model, layers, is_last));
  return pipeline::make_stage(std::make_shared<GptStage>(model, layers, number == 0, is_last));
}

std::vector<pipeline::TiedWeight> tied_weights_of(const models::ModelOptions& model, int stages) {
  if (model.name != "gpt") return {};
  return {{{0, "tokens.weight"}, {stages - 1, "head.weight"}}};
}

std::vector<std::int64_t> activation_shape(const models::ModelOptions& model,
                                           std::int64_t samples) {
  if (model.name == "mlp") return {samples, model.width};
  return {samples, model.input.at(0), model.width};
}

}  // namespace ddp::bench
