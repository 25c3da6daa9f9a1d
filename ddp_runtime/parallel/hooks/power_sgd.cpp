#include "ddp_runtime/parallel/hooks/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>

#include <utility>

namespace ddp::hooks {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
};

// The first dimension against all others: a convolution's output channels against its filters.
Shape matrix_shape(const torch::Tensor& gradient) {
  return {gradient.size(0), gradient.numel() / gradient.size(0)};
}

torch::Tensor orthonormal(const torch::Tensor& columns) {
  return std::get<0>(torch::linalg_qr(columns, "reduced"));
}

// Cuts `flat` into matrices of these many rows each, one after the other.
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
    for (Matrix& matrix : parcel.matrices) {
      matrix.p.copy_(orthonormal(matrix.p));
      torch::mm_out(matrix.q, matrix.memory->error.t(), matrix.p);
    }
    co_await bucket.all_reduce(parcel.qs);
    for (const Matrix& matrix : parcel.matrices) put_gradient(matrix, bucket.group().size());
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
    parcel.matrices.push_back({member.gradient, &memory, {}, {}});
    p_elements += memory.error.size(0) * memory.q.size(1);
    q_elements += memory.q.numel();
  }
  if (!flattened.empty()) parcel.flat_rest = torch::cat(flattened);
  parcel.ps = torch::empty({p_elements}, bucket.tensor().options());
  parcel.qs = torch::empty({q_elements}, bucket.tensor().options());
  Cutter next_p(parcel.ps);
  Cutter next_q(parcel.qs);
  for (Matrix& matrix : parcel.matrices) {
    auto& [error, q] = *matrix.memory;
    matrix.p = next_p.next(error.size(0), q.size(1));
    matrix.q = next_q.next(q.size(0), q.size(1));
    error.add_(matrix.gradient.reshape(error.sizes()));
    torch::mm_out(matrix.p, error, orthonormal(q));
  }
  return parcel;
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
  // The same on all ranks, without touching the generators that dropout draws from.
  const auto generator =
      at::make_generator<at::CPUGeneratorImpl>(options_.seed * 1000003U + member.parameter);
  memory.q = torch::randn({columns, options_.rank}, generator, member.gradient.options());
  return memory;
}

// Of the approximation each rank has contributed its share: what it lacks is this rank's error.
void PowerSgd::put_gradient(const Matrix& matrix, int ranks) {
  const auto approximation = matrix.p.mm(matrix.q.t());
  matrix.memory->error.sub_(approximation, 1.0 / ranks);
  matrix.memory->q = matrix.q.clone();
  matrix.gradient.copy_(approximation.view(matrix.gradient.sizes()));
}

}  // namespace ddp::hooks
