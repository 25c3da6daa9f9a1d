// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/layers/sync_batch_norm.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/parallel/layers/batch_statistics.h"
#include "ddp_runtime/parallel/layers/each_module.h"
#include "ddp_runtime/parallel/tensors/tensor_buffer.h"

namespace ddp {
namespace {

// State of forward that backward needs besides its inputs. A custom Function keeps such state as an
// IValue, which can hold a CustomClassHolder.
struct Normalization : torch::CustomClassHolder {
  Normalization(comm::Group& c, std::string n, const BatchStatistics& s, double eps)
      : channel(c),
        name(std::move(n)),
        mean(s.mean),
        variance(s.variance()),
        count(s.count),
        inverse_deviation((variance + eps).rsqrt()),
        epsilon(eps) {}

  comm::Group& channel;
  std::string name;
  torch::Tensor mean;  // over all ranks' batches, like the other fields: [channels], double
  torch::Tensor variance;
  torch::Tensor count;  // scalar
  torch::Tensor inverse_deviation;
  double epsilon;
};

torch::Tensor gather(comm::Group& channel, const torch::Tensor& mine, const std::string& label) {
  auto all = torch::empty({channel.size(), mine.numel()}, mine.options());
  channel.all_gather(buffer_of(mine), buffer_of(all), label).wait();
  return all;
}

struct ChannelSums {
  torch::Tensor gradient;              // [channels]: sum of dy
  torch::Tensor gradient_x_deviation;  // [channels]: sum of dy (x - mean)
};

// The sums of this rank and of all ranks.
std::pair<ChannelSums, ChannelSums> sums(const Normalization& n, const torch::Tensor& gradient,
                                         const torch::Tensor& deviation) {
  const auto within = dimensions_within_channel(gradient);
  const auto mine = torch::stack({gradient.sum(within), (gradient * deviation).sum(within)});
  auto all = mine.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true).contiguous();
  n.channel.all_reduce(buffer_of(all), comm::ReduceOp::sum, n.name + ", backward").wait();
  return {{mine[0], mine[1]}, {all[0], all[1]}};
}

class Normalize : public torch::autograd::Function<Normalize> {
 public:
  // `inputs`: the batch, then weight and bias if there are any; a TensorList, because 1.13 does not
  // accept undefined tensors.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<Normalization>& n) {
    const torch::Tensor& batch = inputs[0];
    const auto weight = inputs.size() > 1 ? inputs[1] : torch::Tensor();
    const auto bias = inputs.size() > 1 ? inputs[2] : torch::Tensor();
    context->save_for_backward({batch, weight});
    context->saved_data["normalization"] = c10::IValue::make_capsule(n);
    if (batch.numel() == 0) return batch.clone();
    const auto type = torch::dtype(summation_type(batch)).device(batch.device());
    // With given statistics, torch uses the same kernel as in eval mode.
    return torch::batch_norm(batch, weight, bias, n->mean.to(type), n->variance.to(type),
                             /*training=*/false, /*momentum=*/0, n->epsilon,
                             /*cudnn_enabled=*/true);
  }

  // dx = w / s (dy - mean(dy) - (x - m) / s^2 mean(dy (x - m))), with the means over the batch of
  // all ranks and s^2 the variance plus epsilon. The gradients of weight and bias are this rank's
  // share: averaging them is the reducer's work, as for every parameter.
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto n = c10::static_intrusive_pointer_cast<Normalization>(
        context->saved_data["normalization"].toCapsule());
    const auto saved = context->get_saved_variables();
    const torch::Tensor& input = saved[0];
    const torch::Tensor& weight = saved[1];

    const auto gradient = gradients[0].to(summation_type(input));
    const auto deviation = input.to(gradient.scalar_type()) - per_channel(n->mean, gradient);
    const auto [mine, all] = sums(*n, gradient, deviation);

    const auto slope = n->inverse_deviation.square() * all.gradient_x_deviation / n->count;
    auto scale = n->inverse_deviation;
    if (weight.defined()) scale = scale * weight.to(scale.options());
    auto of_input = gradient - per_channel(all.gradient / n->count, gradient);
    of_input.sub_(deviation * per_channel(slope, gradient)).mul_(per_channel(scale, gradient));

    torch::autograd::tensor_list all_gradients{of_input.to(input.scalar_type())};
    if (weight.defined()) {
      const auto of_weight =
          mine.gradient_x_deviation * n->inverse_deviation.to(mine.gradient.options());
      all_gradients.push_back(of_weight.to(weight.scalar_type()));
      all_gradients.push_back(mine.gradient.to(weight.scalar_type()));
    }
    all_gradients.emplace_back();  // no gradient for the normalization
    return all_gradients;
  }
};

}  // namespace

void SyncBatchNormImpl::connect(comm::Group& group, std::string name) {
  channel_ = group.size() > 1 ? &group.channel("SyncBatchNorm") : nullptr;
  name_ = std::move(name);
}

bool SyncBatchNormImpl::communicates() const noexcept {
  return channel_ != nullptr && is_training();
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  const double momentum = begin_batch();
  return communicates() ? normalize_together(input, momentum) : normalize_alone(input, momentum);
}

double SyncBatchNormImpl::begin_batch() {
  if (!is_training() || !options.track_running_stats()) return options.momentum().value_or(0);
  num_batches_tracked += 1;
  // Without a momentum, the running statistics are the mean over all batches.
  return options.momentum() ? *options.momentum() : 1 / num_batches_tracked.item<double>();
}

torch::Tensor SyncBatchNormImpl::normalize_alone(const torch::Tensor& input, double momentum) {
  const bool of_batch = is_training() || !options.track_running_stats();
  return torch::nn::functional::detail::batch_norm(input, running_mean, running_var, weight, bias,
                                                   of_batch, momentum, options.eps());
}

// Asks for the sum over the ranks, which is on the device, only if this rank's part is not enough.
void SyncBatchNormImpl::require_variance(const torch::Tensor& input,
                                         const BatchStatistics& batch) const {
  if (input.numel() / input.size(1) >= 2) return;
  const double count = batch.count.item<double>();
  if (count >= 2) return;
  throw UsageError(fmt::format(
      "SyncBatchNorm ({}) got too few values per channel, {:.0f} from all {} ranks together; a "
      "variance needs two; use a larger batch, or eval()",
      name_, count, channel_->size()));
}

torch::Tensor SyncBatchNormImpl::normalize_together(const torch::Tensor& input, double momentum) {
  BatchStatistics batch;
  {
    const torch::NoGradGuard no_grad;
    batch = combine_statistics(gather(*channel_, pack_statistics(input), name_ + ", forward"));
    require_variance(input, batch);
    if (options.track_running_stats()) {
      const auto type = running_mean.options();
      running_mean.mul_(1 - momentum).add_(batch.mean.to(type), momentum);
      running_var.mul_(1 - momentum).add_(batch.unbiased_variance().to(type), momentum);
    }
  }
  std::vector<torch::Tensor> inputs{input};
  if (options.affine()) inputs.insert(inputs.end(), {weight, bias});
  return Normalize::apply(at::TensorList(inputs), c10::make_intrusive<Normalization>(
                                                      *channel_, name_, batch, options.eps()));
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
  throw UsageError(
      fmt::format("SyncBatchNorm was made for [samples, {}, ...] and got a tensor of shape [{}]",
                  options.num_features(), fmt::join(input.sizes(), ", ")));
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("ddp::SyncBatchNorm({}, eps={}, affine={}, track_running_stats={})",
                        options.num_features(), options.eps(), options.affine(),
                        options.track_running_stats());
}

void connect_sync_batch_norm(torch::nn::Module& module, comm::Group& group) {
  std::vector<std::pair<std::string, SyncBatchNormImpl*>> layers;
  for_each_module(module, [&](const std::string& name, torch::nn::Module& layer) {
    if (layer.as<torch::nn::BatchNorm1d>() != nullptr ||
        layer.as<torch::nn::BatchNorm2d>() != nullptr ||
        layer.as<torch::nn::BatchNorm3d>() != nullptr) {
      throw UsageError(fmt::format(
          "layer '{}' is a {}, which C++ cannot replace; declare it as ddp::SyncBatchNorm", name,
          layer.name()));
    }
    if (auto* norm = layer.as<SyncBatchNorm>()) layers.emplace_back(name, norm);
  });
  for (const auto& [name, norm] : layers) norm->connect(group, name);
}

bool communicates_in_forward(torch::nn::Module& module) {
  bool any = false;
  for_each_module(module, [&](const std::string&, torch::nn::Module& layer) {
    const auto* norm = layer.as<SyncBatchNorm>();
    any = any || (norm != nullptr && norm->communicates());
  });
  return any;
}

}  // namespace ddp
