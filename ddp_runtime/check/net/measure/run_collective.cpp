// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/run_collective.h"

#include <chrono>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/errors.h"
#include "ddp_runtime/check/net/measure/exact_sum.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxElements = std::size_t{1} << 30;
constexpr const char* kLabel = "ddp-check collective";

// Keeps the first wrong element and counts all wrong elements.
void merge(Mismatch& all, const Mismatch& one) {
  if (all.count == 0) {
    all = one;
  } else {
    all.count += one.count;
  }
}

// The buffers of one rank: one for all elements and one for the rank's share.
class Buffers {
 public:
  Buffers(comm::Group& group, const CollectiveCommand& command)
      : group_(group),
        collective_(command.collective),
        sum_(command.seed, group.size()),
        all_(command.elements),
        share_(collective_ == Collective::all_reduce
                   ? 0
                   : command.elements / static_cast<std::size_t>(group.size())) {}

  void fill() { sum_.fill(group_.rank(), collective_ == Collective::all_gather ? share_ : all_); }

  void run() {
    const auto all = comm::buffer_of(std::span(all_));
    const auto share = comm::buffer_of(std::span(share_));
    switch (collective_) {
      case Collective::all_reduce:
        return group_.all_reduce(all, comm::ReduceOp::sum, kLabel).wait();
      case Collective::reduce_scatter:
        return group_.reduce_scatter(all, share, comm::ReduceOp::sum, kLabel).wait();
      case Collective::all_gather:
        return group_.all_gather(share, all, kLabel).wait();
    }
  }

  std::span<float> result() {
    return collective_ == Collective::reduce_scatter ? std::span(share_) : std::span(all_);
  }

  Mismatch check() const {
    const auto rank = static_cast<std::size_t>(group_.rank());
    switch (collective_) {
      case Collective::all_reduce:
        return compare(sum_, all_);
      case Collective::reduce_scatter:
        return compare(sum_, share_, rank * share_.size());
      case Collective::all_gather:
        return compare_inputs(sum_, all_, group_.size());
    }
    return {};
  }

 private:
  comm::Group& group_;
  Collective collective_;
  ExactSum sum_;
  std::vector<float> all_;
  std::vector<float> share_;
};

}  // namespace

CollectiveResult run_collective(comm::Group& group, const CollectiveCommand& command,
                                bool corrupt) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const bool uneven = command.collective != Collective::all_reduce && command.elements % ranks != 0;
  if (command.elements == 0 || command.elements > kMaxElements || uneven || command.iterations < 1)
    throw RuntimeError("the leader requested a collective with an invalid size");
  Buffers buffers(group, command);
  CollectiveResult result;
  for (int i = 0; i <= command.iterations; ++i) {  // the first iteration is a warm-up
    buffers.fill();
    group.barrier(kLabel).wait();
    const auto start = Clock::now();
    buffers.run();
    const double seconds = seconds_since(start);
    if (i > 0) result.seconds.push_back(seconds);
    if (corrupt) buffers.result()[buffers.result().size() / 2] += 1.0F;
    merge(result.mismatch, buffers.check());
  }
  return result;
}

}  // namespace ddp::check
