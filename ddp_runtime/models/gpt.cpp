// SPDX-License-Identifier: Apache-2.0
// A decoder-only transformer. Tensor shapes: n samples, t positions, w width, h heads, d = w / h.
#include <fmt/format.h>

#include <cmath>

#include "base/errors.h"
#include "ddp_runtime/models/builtin.h"
#include "ddp_runtime/models/matrix_products.h"
#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::models {
namespace {

constexpr double kInitialSpread = 0.02;  // as in GPT-2

// GPT-2's initialization. A residual stream sums 2 x layers branches, whose last projections start
// smaller so that the sum does not grow with depth.
torch::nn::Linear linear(std::int64_t in, std::int64_t out, double spread = kInitialSpread) {
  torch::nn::Linear layer(in, out);
  torch::nn::init::normal_(layer->weight, 0, spread);
  torch::nn::init::zeros_(layer->bias);
  return layer;
}

torch::nn::LayerNorm norm(std::int64_t width) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
}

class Block final : public torch::nn::Module {
 public:
  Block(std::int64_t width, std::int64_t heads, double branch_spread)
      : heads_(heads),
        norm1_(register_module("norm1", norm(width))),
        qkv_(register_module("qkv", linear(width, 3 * width))),
        projection_(register_module("projection", linear(width, width, branch_spread))),
        norm2_(register_module("norm2", norm(width))),
        expand_(register_module("expand", linear(width, 4 * width))),
        contract_(register_module("contract", linear(4 * width, width, branch_spread))) {}

  // x [n, t, w]
  torch::Tensor forward(const torch::Tensor& x) {
    const auto y = x + attention(norm1_(x));
    return y + through(contract_, torch::gelu(through(expand_, norm2_(y)), "tanh"));
  }

 private:
  torch::Tensor attention(const torch::Tensor& x) {
    const auto n = x.size(0);
    const auto t = x.size(1);
    const auto w = x.size(2);
    // Each [n, h, t, d]. Backward of unbind() writes their gradients into one tensor; that of an
    // index would add three, each as large as all.
    const auto qkv = through(qkv_, x).view({n, t, 3, heads_, w / heads_}).permute({2, 0, 3, 1, 4});
    const auto parts = qkv.unbind();
    const auto mixed = torch_compat::causal_attention(parts[0], parts[1], parts[2]);
    return through(projection_, mixed.transpose(1, 2).reshape({n, t, w}));
  }

  std::int64_t heads_;
  torch::nn::LayerNorm norm1_;
  torch::nn::Linear qkv_;
  torch::nn::Linear projection_;
  torch::nn::LayerNorm norm2_;
  torch::nn::Linear expand_;
  torch::nn::Linear contract_;
};

struct Sizes {
  std::int64_t context;
  std::int64_t vocabulary;
  std::int64_t width;
  std::int64_t layers;
  std::int64_t heads;
};

class Gpt final : public Model {
 public:
  Gpt(const Sizes& sizes, const ModelOptions& options)
      : checkpoint_activations_(options.checkpoint_activations),
        tokens_(register_module("tokens", torch::nn::Embedding(sizes.vocabulary, sizes.width))),
        positions_(register_module("positions", torch::nn::Embedding(sizes.context, sizes.width))) {
    torch::nn::init::normal_(tokens_->weight, 0, kInitialSpread);
    torch::nn::init::normal_(positions_->weight, 0, kInitialSpread);
    const double branch_spread =
        kInitialSpread / std::sqrt(2.0 * static_cast<double>(sizes.layers));
    torch::nn::ModuleList list;
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      blocks_.push_back(std::make_shared<Block>(sizes.width, sizes.heads, branch_spread));
      list->push_back(blocks_.back());
      options.built(*blocks_.back());
    }
    register_module("blocks", list);
    norm_ = register_module("norm", norm(sizes.width));
  }

  // Maps inputs, int64 [n, t] with t at most the context, to scores [n, t, vocabulary]. The output
  // layer uses the token embedding's tensor, so checkpoints hold one parameter with one name.
  torch::Tensor forward(const torch::Tensor& inputs) override {
    auto x = embed(*tokens_, *positions_, inputs);
    for (const auto& block : blocks_) x = through_block(block, x, checkpoint_activations_);
    return scores(*norm_, *tokens_, x);
  }

  std::vector<std::string> units() const override { return {"blocks.*"}; }

  std::vector<Piece> pieces() const override {
    std::vector<Piece> pieces;
    const auto tokens = tokens_.ptr();
    const auto positions = positions_.ptr();
    pieces.push_back({"tokens", {tokens, positions}, [tokens, positions](const torch::Tensor& x) {
                        return embed(*tokens, *positions, x);
                      }});
    for (const auto& block : blocks_) {
      pieces.push_back({fmt::format("blocks.{}", pieces.size() - 1),
                        {block},
                        [block, checkpoint = checkpoint_activations_](const torch::Tensor& x) {
                          return through_block(block, x, checkpoint);
                        }});
    }
    const auto norm = norm_.ptr();
    pieces.push_back({"norm", {norm, tokens}, [norm, tokens](const torch::Tensor& x) {
                        return scores(*norm, *tokens, x);
                      }});
    return pieces;
  }

 private:
  static torch::Tensor embed(torch::nn::EmbeddingImpl& tokens, torch::nn::EmbeddingImpl& positions,
                             const torch::Tensor& inputs) {
    return tokens.forward(inputs) + positions.weight.slice(0, 0, inputs.size(1));
  }

  static torch::Tensor scores(torch::nn::LayerNormImpl& norm, torch::nn::EmbeddingImpl& tokens,
                              const torch::Tensor& x) {
    return scores_of(norm.forward(x), tokens.weight, !x.is_cpu());
  }

  static torch::Tensor through_block(const std::shared_ptr<Block>& block, const torch::Tensor& x,
                                     bool checkpoint_activations) {
    if (!checkpoint_activations || !torch::GradMode::is_enabled()) return unit(block)(x);
    return checkpointed(
        [block](const std::vector<torch::Tensor>& in) { return unit(block)(in[0]); }, {x},
        block->parameters());
  }

  bool checkpoint_activations_;
  torch::nn::Embedding tokens_;
  torch::nn::Embedding positions_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_gpt(const ModelOptions& options) {
  const Sizes sizes{options.input.at(0), options.classes, options.width > 0 ? options.width : 128,
                    options.layers > 0 ? options.layers : 4,
                    options.heads > 0 ? options.heads : kGptHeads};
  if (sizes.width % sizes.heads != 0) {
    throw UsageError(
        fmt::format("gpt's width {} cannot be divided among {} heads; choose a --width that is a "
                    "multiple of --heads",
                    sizes.width, sizes.heads));
  }
  return std::make_shared<Gpt>(sizes, options);
}

}  // namespace ddp::models
