// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/half_cross_entropy.h"

#include <tuple>

namespace ddp::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// With fewer elements, a few more kernels cost more than a few more bytes.
constexpr std::int64_t kManyElements = std::int64_t{1} << 24;

// Per row, as a column.
struct Rows {
  torch::Tensor losses;         // float32; of ignored targets, too
  torch::Tensor counted;        // bool: whether the target is not ignored
  torch::Tensor probabilities;  // [n, classes], of the type of the scores, without `peak`
  torch::Tensor peak;           // the largest probability, of the type of the scores
  torch::Tensor peak_class;
  torch::Tensor others;     // the sum of `probabilities`, float32
  torch::Tensor target;     // the class; any if the target is ignored
  torch::Tensor at_target;  // its probability, float32
};

void require_fitting(const torch::Tensor& scores, const torch::Tensor& targets) {
  TORCH_CHECK(scores.dim() == 2 && targets.dim() == 1 && scores.size(0) == targets.size(0),
              "cross-entropy needs scores [n, classes] and targets [n], not ", scores.sizes(),
              " and ", targets.sizes());
}

Rows rows_of(const torch::Tensor& scores, const torch::Tensor& targets) {
  require_fitting(scores, targets);
  Rows rows;
  const auto wanted = targets.to(torch::kInt64).unsqueeze(1);
  rows.counted = wanted.ne(kIgnoredTarget);
  rows.target = wanted.masked_fill(wanted.eq(kIgnoredTarget), 0);
  // Autocast leaves this operator alone, unlike softmax().
  rows.probabilities = at::_softmax(scores, 1, /*half_to_float=*/false);
  std::tie(rows.peak, rows.peak_class) = rows.probabilities.max(1, /*keepdim=*/true);
  rows.at_target = rows.probabilities.gather(1, rows.target).to(torch::kFloat32);
  rows.probabilities.scatter_(1, rows.peak_class, 0);
  rows.others = rows.probabilities.sum({1}, /*keepdim=*/true, torch::kFloat32);
  const auto gap = scores.gather(1, rows.peak_class).to(torch::kFloat32) -
                   scores.gather(1, rows.target).to(torch::kFloat32);
  rows.losses = gap + (rows.others / rows.peak).log1p();
  return rows;
}

// The derivatives by the scores of the sum of all losses.
torch::Tensor derivatives(Rows& rows) {
  const auto by_target = -(rows.others + (rows.peak.to(torch::kFloat32) - rows.at_target));
  return rows.probabilities.scatter_(1, rows.peak_class, rows.peak)
      .scatter_(1, rows.target, by_target.to(rows.probabilities.scalar_type()));
}

// Ignored targets count nothing, even if their loss is not a number.
torch::Tensor counted_losses(const Rows& rows) {
  return rows.losses.masked_fill(rows.counted.logical_not(), 0);
}

torch::Tensor mean_of(const Rows& rows) {
  return counted_losses(rows).sum() / rows.counted.sum();
}

class HalfCrossEntropy : public torch::autograd::Function<HalfCrossEntropy> {
 public:
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& scores,
                               const torch::Tensor& targets) {
    auto rows = rows_of(scores, targets);
    auto mean = mean_of(rows);
    // A mean over nothing is not a number, but its derivatives are 0, as libtorch's.
    const auto weights = rows.counted.to(torch::kFloat32) / rows.counted.sum().clamp_min(1);
    context->save_for_backward({derivatives(rows), weights});
    return mean;
  }

  static variable_list backward(AutogradContext* context, variable_list incoming) {
    TORCH_CHECK(!torch::GradMode::is_enabled(),
                "the cross-entropy of scores in half precision has no second derivatives; compute "
                "the loss in float32, from scores.to(torch::kFloat32)");
    const auto saved = context->get_saved_variables();
    // The factor stays in float32, because 1 / n may be too small for fp16. The saved tensor stays
    // as it is, because backward may come again.
    auto gradient = torch::empty_like(saved[0]);
    at::mul_out(gradient, saved[0], saved[1] * incoming[0].to(torch::kFloat32));
    return {gradient, torch::Tensor()};
  }
};

}  // namespace

bool has_cheap_cross_entropy(const torch::Tensor& scores) {
  return !scores.is_cpu() && scores.numel() >= kManyElements &&
         scores.scalar_type() == torch::kBFloat16;
}

torch::Tensor half_cross_entropies(const torch::Tensor& scores, const torch::Tensor& targets) {
  const torch::NoGradGuard no_grad;
  return counted_losses(rows_of(scores, targets)).squeeze(1);
}

torch::Tensor half_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets) {
  if (torch::GradMode::is_enabled() && scores.requires_grad()) {
    return HalfCrossEntropy::apply(scores, targets);
  }
  const torch::NoGradGuard no_grad;
  return mean_of(rows_of(scores, targets));
}

}  // namespace ddp::train
