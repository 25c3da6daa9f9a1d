// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>

#include <limits>
#include <utility>

namespace ddp::hooks {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
};

// The first dimension becomes the rows, and all others the columns. For a convolution, the rows are
// the output channels.
Shape matrix_shape(const torch::Tensor& gradient) {
  return {gradient.size(0), gradient.numel() / gradient.size(0)};
}

torch::Tensor orthonormal(const torch::Tensor& columns) {
  return std::get<0>(torch::linalg_qr(columns, "reduced"));
}

bool is_finite(const torch::Tensor& tensor) {
  return tensor.isfinite().all().item<bool>();
}

// Cuts `flat` into matrices with the given numbers of rows, one after another.
class Cutter {
 public:
  explicit Cutter(torch::Tensor flat) : flat_(std::move(flat)) {}
  torch::Tensor next(std::int64_t rows, std::int64_t columns) {
    const auto part = flat_.narrow(0, at_, rows * columns).view({rows, columns});
    at_ += rows * columns;
    return part;
  }

 private:
  torch::Tensor flat_;
  std::int64_t at_ = 0;
};

}  // namespace

HookTask PowerSgd::reduce(GradientBucket& bucket) {
  if (bucket.pass() < options_.full_passes) {
    co_await bucket.all_reduce(bucket.tensor());
    co_return;
  }
  Parcel parcel = pack(bucket);
  if (!parcel.rest.empty()) co_await bucket.all_reduce(parcel.flat_rest);
  if (!parcel.matrices.empty()) {
    co_await bucket.all_reduce(parcel.ps);
    multiply_back(parcel);
    co_await bucket.all_reduce(parcel.qs);
    const bool finite = is_finite(parcel.qs);
    for (Matrix& matrix : parcel.matrices) {
      matrix.finite = matrix.finite && (finite || is_finite(matrix.q));
      put_gradient(matrix, bucket.group().size(), bucket.loss_scale());
    }
  }
  std::int64_t at = 0;
  for (const auto& gradient : parcel.rest) {
    gradient.copy_(parcel.flat_rest.narrow(0, at, gradient.numel()).view(gradient.sizes()));
    at += gradient.numel();
  }
}

PowerSgd::Parcel PowerSgd::pack(const GradientBucket& bucket) {
  Parcel parcel;
  std::vector<torch::Tensor> flattened;
  std::int64_t p_elements = 0;
  std::int64_t q_elements = 0;
  for (const BucketMember& member : bucket.members()) {
    if (!compresses(member.gradient)) {
      parcel.rest.push_back(member.gradient);
      flattened.push_back(member.gradient.reshape({-1}));
      continue;
    }
    Memory& memory = memory_of(member);
    member.gradient.add_(memory.error.view(member.gradient.sizes()), bucket.loss_scale());
    Matrix& matrix = parcel.matrices.emplace_back();
    matrix.gradient = member.gradient;
    matrix.m = member.gradient.reshape(memory.error.sizes());
    matrix.memory = &memory;
    matrix.used_here = member.used;
    p_elements += memory.error.size(0) * memory.q.size(1);
    q_elements += memory.q.numel();
  }
  if (!flattened.empty()) parcel.flat_rest = torch::cat(flattened);
  const auto count = static_cast<std::int64_t>(parcel.matrices.size());
  parcel.ps = torch::empty({p_elements + count}, bucket.tensor().options());
  parcel.qs = torch::empty({q_elements}, bucket.tensor().options());
  Cutter next_p(parcel.ps);
  Cutter next_q(parcel.qs);
  for (Matrix& matrix : parcel.matrices) {
    const torch::Tensor& q = matrix.memory->q;
    matrix.p = next_p.next(matrix.m.size(0), q.size(1));
    matrix.q = next_q.next(q.size(0), q.size(1));
    torch::mm_out(matrix.p, matrix.m, orthonormal(q));
  }
  for (Matrix& matrix : parcel.matrices) {
    matrix.used = next_p.next(1, 1).fill_(matrix.used_here ? 1 : 0);
  }
  return parcel;
}

// Computes Q from P once P has been summed over all ranks.
void PowerSgd::multiply_back(Parcel& parcel) {
  const bool finite = is_finite(parcel.ps);
  for (Matrix& matrix : parcel.matrices) {
    matrix.finite = finite || is_finite(matrix.p);
    if (!matrix.finite) {  // a decomposition may fail on such values
      matrix.q.zero_();
      continue;
    }
    matrix.p.copy_(orthonormal(matrix.p));
    torch::mm_out(matrix.q, matrix.m.t(), matrix.p);
  }
}

bool PowerSgd::compresses(const torch::Tensor& gradient) const {
  if (gradient.dim() < 2 || gradient.element_size() < 4) return false;
  const auto [rows, columns] = matrix_shape(gradient);
  const auto sent = static_cast<double>((rows + columns) * options_.rank);
  return sent * options_.least_compression <= static_cast<double>(rows * columns);
}

PowerSgd::Memory& PowerSgd::memory_of(const BucketMember& member) {
  Memory& memory = memories_[member.parameter];
  if (memory.error.defined()) return memory;
  const auto [rows, columns] = matrix_shape(member.gradient);
  memory.error = torch::zeros({rows, columns}, member.gradient.options());
  // This generator is the same on all ranks and leaves the generators that dropout uses alone.
  const auto generator =
      at::make_generator<at::CPUGeneratorImpl>(options_.seed * 1000003U + member.parameter);
  memory.q = torch::randn({columns, options_.rank}, generator, member.gradient.options());
  return memory;
}

// Stores the approximation as the gradient. The difference between this rank's gradient and its
// share of the approximation becomes the rank's new error. See Note [Keeping the error clean].
void PowerSgd::put_gradient(const Matrix& matrix, int ranks, double loss_scale) {
  if (!matrix.finite) {
    matrix.gradient.fill_(std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (matrix.used.item<double>() == 0) {
    matrix.gradient.zero_();
    return;
  }
  const auto approximation = matrix.p.mm(matrix.q.t());
  auto& [error, q] = *matrix.memory;
  torch::sub_out(error, matrix.m, approximation, 1.0 / ranks);
  if (loss_scale != 1) error.mul_(1.0 / loss_scale);
  q = matrix.q.clone();
  matrix.gradient.copy_(approximation.view(matrix.gradient.sizes()));
}

}  // namespace ddp::hooks
