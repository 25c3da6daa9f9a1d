// SPDX-License-Identifier: Apache-2.0
// What backward passes have told about the graph behind the losses: in which order gradients become
// ready, and, for a static graph, how many each parameter gets and which ranks use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/options.h"

namespace ddp {

class GraphKnowledge {
 public:
  GraphKnowledge(std::size_t parameters, const DataParallelOptions& options);

  // Around each pass that reduces. The second one is collective while the order is unknown.
  void begin_pass();
  void end_pass(comm::Group& group);
  // In a pass: whether this gradient is the last one that the parameter gets in it. Throws
  // RuntimeError for one more than in the first step of a static graph. `name` is for the error.
  bool is_last_gradient(std::size_t index, const std::string& name);

  // Parameters of a static graph to which no gradient will come, as far as that is known.
  std::vector<std::size_t> unreachable() const;
  bool may_miss_gradients() const noexcept;
  // Whether this step determines which parameters were used by any rank.
  bool tracks_use() const noexcept;
  // `used`: in this step, by any rank if tracks_use(). Returns the parameters that have gradients.
  const std::vector<std::uint8_t>& with_gradients(std::vector<std::uint8_t>& used);

  // Whether buckets should be made anew, from ready_order(); once.
  bool take_new_order() noexcept;
  const std::vector<std::size_t>& ready_order() const noexcept { return ready_order_; }
  // See Reducer.
  std::vector<std::int64_t> gradient_order() const;
  void expect_gradient_order(std::span<const std::int64_t> order);

 private:
  bool follows_order() const noexcept;
  bool agree_on_order(comm::Group& group);

  // Of the order.
  enum class Known : std::uint8_t { nothing, new_order, all };

  std::size_t parameters_;
  bool is_static_;
  bool allows_unused_;
  bool rebuilds_;
  Known known_ = Known::nothing;
  std::vector<std::size_t> ready_order_;    // as recorded in the first pass that reduced
  std::vector<std::int32_t> gradients_of_;  // static graph: gradients per pass, learned
  std::vector<std::int32_t> gradients_left_;
  std::vector<std::uint8_t> used_by_any_;  // static graph: learned in the first step
};

}  // namespace ddp
