// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/shape_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/call_record.h"

namespace ddp {

ShapeComparison::ShapeComparison(comm::Group& group, std::string what, std::string mine)
    : group_(group),
      what_(std::move(what)),
      mine_(std::move(mine)),
      extremes_(std::make_shared<std::array<std::int64_t, 2>>()) {
  // The smallest of all and, negated, the largest.
  const auto hash = static_cast<std::int64_t>(comm::hash_on(0, mine_) >> 1);
  *extremes_ = {hash, -hash};
  work_ = group_.all_reduce(comm::buffer_of(std::span<std::int64_t>(*extremes_)),
                            comm::ReduceOp::min, "shapes of " + what_, extremes_);
}

void ShapeComparison::finish() {
  work_.wait();
  if ((*extremes_)[0] == -(*extremes_)[1]) return;
  const auto all = group_.all_gather_text(mine_);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UsageError(fmt::format(
        "{}: rank {} passes {}, but rank {} passes {}; all ranks must pass the same", what_,
        group_.world_rank(static_cast<int>(rank)), all[rank], group_.world_rank(0), all[0]));
  }
}

std::string describe_tensor(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  std::string type = c10::toString(tensor.scalar_type());
  return fmt::format("a tensor of type {} and shape [{}] on {}", type,
                     fmt::join(tensor.sizes(), ", "),
                     tensor.device().is_cpu() ? "a CPU" : "a device");
}

}  // namespace ddp
