// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/unit_order.h"

#include <algorithm>
#include <utility>

namespace ddp {
namespace {

// Elements [first, last).
UnitOrder::Units between(const UnitOrder::Units& units, std::size_t first, std::size_t last) {
  return {units.begin() + static_cast<std::ptrdiff_t>(first),
          units.begin() + static_cast<std::ptrdiff_t>(last)};
}

}  // namespace

UnitOrder::Units UnitOrder::learned_from(const Units& calls) const {
  auto ahead = expected_.begin();
  bool in_turn = true;
  for (const std::size_t unit : calls) {
    ahead = std::find(ahead, expected_.end(), unit);
    in_turn = ahead != expected_.end();
    if (!in_turn) break;
    ++ahead;
  }
  if (in_turn) return expected_;
  auto learned = calls;
  for (const std::size_t unit : expected_) {
    if (std::ranges::find(calls, unit) == calls.end()) learned.push_back(unit);
  }
  return learned;
}

void UnitOrder::begin_forward() {
  calls_.clear();
  next_ = 0;
}

UnitOrder::Units UnitOrder::call(std::size_t unit) {
  calls_.push_back(unit);
  const auto from = expected_.begin() + static_cast<std::ptrdiff_t>(next_);
  const auto found = std::find(from, expected_.end(), unit);
  if (found == expected_.end()) return {unit};
  const std::size_t first =
      std::exchange(next_, static_cast<std::size_t>(std::distance(expected_.begin(), found)) + 1);
  return between(expected_, first, next_);
}

bool UnitOrder::is_ahead(std::size_t unit) const {
  const auto from = expected_.begin() + static_cast<std::ptrdiff_t>(next_);
  return std::find(from, expected_.end(), unit) != expected_.end();
}

std::optional<std::size_t> UnitOrder::next() const {
  if (next_ == expected_.size()) return std::nullopt;
  return expected_[next_];
}

UnitOrder::Units UnitOrder::skip_rest() {
  const std::size_t first = std::exchange(next_, expected_.size());
  return between(expected_, first, next_);
}

void UnitOrder::begin_backward() {
  backward_.clear();
  previous_ = 0;
  for (auto unit = expected_.rbegin(); unit != expected_.rend(); ++unit) {
    if (std::ranges::find(backward_, *unit) == backward_.end()) backward_.push_back(*unit);
  }
}

UnitOrder::Units UnitOrder::back_to(std::size_t unit) {
  const auto from = backward_.begin() + static_cast<std::ptrdiff_t>(previous_);
  const auto found = std::find(from, backward_.end(), unit);
  if (found == backward_.end()) return {};
  const std::size_t first = std::exchange(
      previous_, static_cast<std::size_t>(std::distance(backward_.begin(), found)) + 1);
  return between(backward_, first, previous_);
}

std::optional<std::size_t> UnitOrder::previous() const {
  if (previous_ == backward_.size()) return std::nullopt;
  return backward_[previous_];
}

bool UnitOrder::was_reached(std::size_t unit) const {
  const auto ahead = backward_.begin() + static_cast<std::ptrdiff_t>(previous_);
  return std::find(ahead, backward_.end(), unit) == backward_.end();
}

UnitOrder::Units UnitOrder::skip_rest_of_backward() {
  const std::size_t first = std::exchange(previous_, backward_.size());
  return between(backward_, first, previous_);
}

}  // namespace ddp
