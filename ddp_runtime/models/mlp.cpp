// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "ddp_runtime/models/builtin.h"
#include "ddp_runtime/parallel/sharded/units/unit.h"

namespace ddp::models {
namespace {

class Mlp final : public Model {
 public:
  Mlp(std::int64_t inputs, std::int64_t width, std::int64_t layers, const ModelOptions& options) {
    for (std::int64_t i = 0; i < layers; ++i) {
      layers_->push_back(torch::nn::Linear(i == 0 ? inputs : width, width));
      options.built(*layers_->children().back());
    }
    register_module("hidden", layers_);
    output_ =
        register_module("output", torch::nn::Linear(layers == 0 ? inputs : width, options.classes));
  }

  torch::Tensor forward(const torch::Tensor& inputs) override {
    auto x = inputs.flatten(1);
    for (const auto& layer : *layers_) x = through_hidden(layer, x);
    return output_(x);
  }

  std::vector<std::string> units() const override { return {"hidden.*"}; }

  std::vector<Piece> pieces() const override {
    std::vector<Piece> pieces;
    for (const auto& layer : *layers_) {
      pieces.push_back(
          {fmt::format("hidden.{}", pieces.size()), {layer}, [layer](const torch::Tensor& x) {
             return through_hidden(layer, x.flatten(1));
           }});
    }
    pieces.push_back({"output", {output_.ptr()}, [output = output_.ptr()](const torch::Tensor& x) {
                        return output->forward(x.flatten(1));
                      }});
    return pieces;
  }

 private:
  static torch::Tensor through_hidden(const std::shared_ptr<torch::nn::Module>& layer,
                                      const torch::Tensor& x) {
    return torch::relu(unit(*layer->as<torch::nn::Linear>())(x));
  }

  torch::nn::ModuleList layers_;
  torch::nn::Linear output_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelOptions& options) {
  const auto inputs = std::accumulate(options.input.begin(), options.input.end(), std::int64_t{1},
                                      std::multiplies<>());
  return std::make_shared<Mlp>(inputs, options.width > 0 ? options.width : 128,
                               options.layers > 0 ? options.layers : 2, options);
}

}  // namespace ddp::models
