// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "ddp_runtime/models/builtin.h"
#include "ddp_runtime/models/convolution.h"

namespace ddp::models {
namespace {

constexpr int kStages = 3;

class CifarCnn final : public Model {
 public:
  CifarCnn(std::int64_t channels, std::int64_t width, std::int64_t classes)
      : output_(width << (kStages - 1), classes) {
    for (int stage = 0; stage < kStages; ++stage) {
      const std::int64_t features = width << stage;
      add(channels, features);
      add(features, features);
      channels = features;
    }
    register_module("convolutions", convolutions_);
    register_module("norms", norms_);
    register_module("output", output_);
  }

  torch::Tensor forward(const torch::Tensor& inputs) override {
    auto x = inputs;
    for (std::size_t i = 0; i < convolutions_->size(); ++i) {
      x = convolve(*convolutions_[i], *norms_[i], i % 2 == 1, x);
    }
    return output_(x.mean({2, 3}));
  }

  std::vector<Piece> pieces() const override {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < convolutions_->size(); ++i) {
      const auto convolution = convolutions_->ptr(i);
      const auto norm = norms_->ptr(i);
      pieces.push_back({fmt::format("convolutions.{}", i),
                        {convolution, norm},
                        [convolution, norm, pools = i % 2 == 1](const torch::Tensor& x) {
                          return convolve(*convolution, *norm, pools, x);
                        }});
    }
    pieces.push_back({"output", {output_.ptr()}, [output = output_.ptr()](const torch::Tensor& x) {
                        return output->forward(x.mean({2, 3}));
                      }});
    return pieces;
  }

 private:
  static torch::Tensor convolve(torch::nn::Module& convolution, torch::nn::Module& norm, bool pools,
                                const torch::Tensor& inputs) {
    auto x = convolution.as<torch::nn::Conv2d>()->forward(inputs);
    x = torch::relu(norm.as<torch::nn::BatchNorm2d>()->forward(x));
    return pools ? torch::max_pool2d(x, 2) : x;
  }

  void add(std::int64_t in_channels, std::int64_t out_channels) {
    convolutions_->push_back(he_convolution(in_channels, out_channels, 3));
    norms_->push_back(torch::nn::BatchNorm2d(out_channels));
  }

  torch::nn::ModuleList convolutions_;
  torch::nn::ModuleList norms_;
  torch::nn::Linear output_;
};

}  // namespace

std::shared_ptr<Model> make_cifar_cnn(const ModelOptions& options) {
  require_no_layers(options);
  require_images(options, std::int64_t{1} << kStages);
  return std::make_shared<CifarCnn>(options.input[0], options.width > 0 ? options.width : 32,
                                    options.classes);
}

}  // namespace ddp::models
