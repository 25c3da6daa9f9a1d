// Whether all ranks are doing the same step, asked in every step with one tiny collective that
// travels while backward runs. Finds what no collective notices by itself: a rank that left out a
// step, another number of micro-batches, another loss scale, a loss that is not a number, another
// collective of the same length.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "ddp_runtime/comm/group.h"

namespace ddp {

struct StepFacts {
  std::int64_t step = 0;  // counted by DistributedDataParallel
  std::int64_t micro_batches = 1;
  std::int64_t tag = 0;  // the program's own, such as the position in the data
  bool loss_is_finite = true;
  std::int64_t parameters = 0;  // their checksum, in steps in which they are compared
};

class StepAgreement {
 public:
  explicit StepAgreement(comm::Group& group) : group_(group) {}

  // Starts the question; the facts must not change until check().
  void ask(const StepFacts& facts);
  // Waits for the answer. Throws RuntimeError, on all ranks, naming the ranks that differ from
  // rank 0 or whose loss is not finite, or what they called instead of the others' collectives.
  // False, on all ranks, if only their parameters differ.
  [[nodiscard]] bool check();

 private:
  [[noreturn]] void explain();
  [[noreturn]] void explain_histories();

  comm::Group& group_;
  StepFacts facts_;
  std::uint64_t history_ = 0;  // of the group's collectives before the question
  using Words = std::array<std::int64_t, 5>;
  std::shared_ptr<Words> words_ = std::make_shared<Words>();
  comm::Work answer_;
  bool asked_ = false;
};

}  // namespace ddp
