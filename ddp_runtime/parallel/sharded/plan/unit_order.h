// SPDX-License-Identifier: Apache-2.0
// In which order units are gathered. Bookkeeping of one forward and backward pass, without side
// effects.
//
// Note [Order of gathers]
// Every gather is a collective, so all ranks must start the same ones in the same order. At first
// they expect the order in which the units were registered; if forward calls them in another one,
// the ranks adopt that after the first step. A rank whose control flow skips a unit takes part in
// its gather anyway, before the next one that it needs. Backward needs the units in the opposite
// order, each once, however often it was called.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace ddp {

class UnitOrder {
 public:
  using Units = std::vector<std::size_t>;

  // `expected` is the same on all ranks, and has every unit that may be called.
  explicit UnitOrder(Units expected = {}) : expected_(std::move(expected)) {}

  // The order to expect after a pass with these calls: the same if it has them in their order.
  Units learned_from(const Units& calls) const;

  void begin_forward();
  // Units to gather for a call of this one, in order: those that were skipped, and it.
  Units call(std::size_t unit);
  // Whether this unit can still be called in this pass: its turn has not passed.
  bool is_ahead(std::size_t unit) const;
  // The unit that is expected next, to be gathered ahead.
  std::optional<std::size_t> next() const;
  // Whether backward needs this unit first.
  bool is_last(std::size_t unit) const noexcept {
    return !expected_.empty() && expected_.back() == unit;
  }
  // Those that were not called in this pass, in order.
  Units skip_rest();
  // The calls of this pass.
  const Units& calls() const noexcept { return calls_; }
  const Units& expected() const noexcept { return expected_; }

  void begin_backward();
  // Units to gather for the backward of this one, in order, it last; empty if that was its turn
  // already.
  Units back_to(std::size_t unit);
  std::optional<std::size_t> previous() const;
  const Units& backward() const noexcept { return backward_; }
  // Whether it was the turn of this unit.
  bool was_reached(std::size_t unit) const;
  Units skip_rest_of_backward();

 private:
  Units expected_;
  Units calls_;
  std::size_t next_ = 0;  // in expected_
  Units backward_;
  std::size_t previous_ = 0;  // in backward_
};

}  // namespace ddp
