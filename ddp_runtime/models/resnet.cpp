// SPDX-License-Identifier: Apache-2.0
// Residual networks. Parameters have torchvision's names, so that weights converted from Python
// need no renaming.
#include <fmt/format.h>

#include <array>

#include "ddp_runtime/models/builtin.h"
#include "ddp_runtime/models/convolution.h"

namespace ddp::models {
namespace {

// The largest side of images that get the CIFAR stem: the other stem would reduce them to one
// pixel.
constexpr std::int64_t kSmallImage = 32;

struct Convolution {
  std::int64_t channels;  // output channels
  std::int64_t kernel;
  std::int64_t stride;
};

// Convolutions with batch normalization and ReLU; the input is added to their output. If the shapes
// differ, the input first passes through a strided 1x1 convolution ("downsample").
class ResidualBlock final : public torch::nn::Module {
 public:
  ResidualBlock(std::int64_t channels, const std::vector<Convolution>& convolutions) {
    std::int64_t in = channels;
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < convolutions.size(); ++i) {
      const auto& c = convolutions[i];
      convolutions_.push_back(register_module(fmt::format("conv{}", i + 1),
                                              he_convolution(in, c.channels, c.kernel, c.stride)));
      norms_.push_back(
          register_module(fmt::format("bn{}", i + 1), torch::nn::BatchNorm2d(c.channels)));
      in = c.channels;
      stride *= c.stride;
    }
    if (channels == in && stride == 1) return;
    downsample_ = register_module(
        "downsample",
        torch::nn::Sequential(he_convolution(channels, in, 1, stride), torch::nn::BatchNorm2d(in)));
  }

  torch::Tensor forward(const torch::Tensor& inputs) {
    auto x = inputs;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      if (i > 0) x = torch::relu_(x);
      x = norms_[i](convolutions_[i](x));
    }
    x += downsample_ ? downsample_->forward(inputs) : inputs;
    return torch::relu_(x);
  }

 private:
  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential downsample_{nullptr};
};

std::vector<Convolution> basic(std::int64_t width, std::int64_t stride) {
  return {{width, 3, stride}, {width, 3, 1}};
}

std::vector<Convolution> bottleneck(std::int64_t width, std::int64_t stride) {
  return {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
}

struct Architecture {
  std::array<int, 4> blocks;  // per stage
  std::vector<Convolution> (*block)(std::int64_t width, std::int64_t stride);
};

class ResNet final : public Model {
 public:
  ResNet(const Architecture& architecture, const ModelOptions& options, std::int64_t width)
      : small_(options.input[1] <= kSmallImage && options.input[2] <= kSmallImage),
        conv1_(register_module("conv1", small_ ? he_convolution(options.input[0], width, 3)
                                               : he_convolution(options.input[0], width, 7, 2))),
        bn1_(register_module("bn1", torch::nn::BatchNorm2d(width))) {
    std::int64_t channels = width;
    for (std::size_t stage = 0; stage < architecture.blocks.size(); ++stage) {
      torch::nn::ModuleList blocks;
      for (int i = 0; i < architecture.blocks[stage]; ++i) {
        const auto convolutions = architecture.block(width << stage, stage > 0 && i == 0 ? 2 : 1);
        blocks_.push_back(std::make_shared<ResidualBlock>(channels, convolutions));
        blocks->push_back(blocks_.back());
        block_names_.push_back(fmt::format("layer{}.{}", stage + 1, i));
        channels = convolutions.back().channels;
      }
      register_module(fmt::format("layer{}", stage + 1), blocks);
    }
    fc_ = register_module("fc", torch::nn::Linear(channels, options.classes));
  }

  torch::Tensor forward(const torch::Tensor& inputs) override {
    auto x = stem(*conv1_, *bn1_, small_, inputs);
    for (const auto& block : blocks_) x = block->forward(x);
    return fc_(x.mean({2, 3}));
  }

  std::vector<Piece> pieces() const override {
    std::vector<Piece> pieces;
    const auto conv1 = conv1_.ptr();
    const auto bn1 = bn1_.ptr();
    pieces.push_back({"conv1", {conv1, bn1}, [conv1, bn1, small = small_](const torch::Tensor& x) {
                        return stem(*conv1, *bn1, small, x);
                      }});
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const auto block = blocks_[i];
      pieces.push_back({block_names_[i], {block}, [block](const torch::Tensor& x) {
                          return block->forward(x);
                        }});
    }
    pieces.push_back({"fc", {fc_.ptr()}, [fc = fc_.ptr()](const torch::Tensor& x) {
                        return fc->forward(x.mean({2, 3}));
                      }});
    return pieces;
  }

 private:
  static torch::Tensor stem(torch::nn::Conv2dImpl& convolution, torch::nn::BatchNorm2dImpl& norm,
                            bool small, const torch::Tensor& inputs) {
    const auto x = torch::relu(norm.forward(convolution.forward(inputs)));
    return small ? x : torch::max_pool2d(x, 3, 2, 1);
  }

  bool small_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  std::vector<std::string> block_names_;
  torch::nn::Linear fc_{nullptr};
};

std::shared_ptr<Model> make_resnet(const Architecture& architecture, const ModelOptions& options) {
  require_no_layers(options);
  require_images(options, 8);
  return std::make_shared<ResNet>(architecture, options, options.width > 0 ? options.width : 64);
}

}  // namespace

std::shared_ptr<Model> make_resnet18(const ModelOptions& options) {
  return make_resnet({{2, 2, 2, 2}, basic}, options);
}

std::shared_ptr<Model> make_resnet50(const ModelOptions& options) {
  return make_resnet({{3, 4, 6, 3}, bottleneck}, options);
}

}  // namespace ddp::models
