// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/models/builtin.h"
#include "ddp_runtime/models/convolution.h"

namespace ddp::models {
namespace {

class MnistCnn final : public Model {
 public:
  MnistCnn(std::int64_t channels, std::int64_t height, std::int64_t width, std::int64_t features,
           std::int64_t classes)
      : conv1_(torch::nn::Conv2dOptions(channels, features, 3).padding(1)),
        conv2_(torch::nn::Conv2dOptions(features, 2 * features, 3).padding(1)),
        fc1_(2 * features * (height / 4) * (width / 4), 8 * features),
        fc2_(8 * features, classes) {
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  torch::Tensor forward(const torch::Tensor& inputs) override {
    return fc2_(through_hidden(*fc1_, convolve(*conv2_, convolve(*conv1_, inputs))));
  }

  std::vector<Piece> pieces() const override {
    const auto of = [](const auto& module, const char* name, const auto& function) {
      const auto shared = module.ptr();
      return Piece{name, {shared}, [shared, function](const torch::Tensor& x) {
                     return function(*shared, x);
                   }};
    };
    const auto output = [](torch::nn::LinearImpl& fc, const torch::Tensor& x) {
      return fc.forward(x);
    };
    return {of(conv1_, "conv1", convolve), of(conv2_, "conv2", convolve),
            of(fc1_, "fc1", through_hidden), of(fc2_, "fc2", output)};
  }

 private:
  static torch::Tensor convolve(torch::nn::Conv2dImpl& convolution, const torch::Tensor& x) {
    return torch::max_pool2d(torch::relu(convolution.forward(x)), 2);
  }

  static torch::Tensor through_hidden(torch::nn::LinearImpl& fc, const torch::Tensor& x) {
    return torch::relu(fc.forward(x.flatten(1)));
  }

  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

}  // namespace

std::shared_ptr<Model> make_mnist_cnn(const ModelOptions& options) {
  require_no_layers(options);
  require_images(options, 4);
  const auto& shape = options.input;
  return std::make_shared<MnistCnn>(shape[0], shape[1], shape[2],
                                    options.width > 0 ? options.width : 16, options.classes);
}

}  // namespace ddp::models
