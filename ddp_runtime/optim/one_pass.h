// SPDX-License-Identifier: Apache-2.0
// The update of parameters on the CPU in one pass over their memory, or over that of their state in
// a file.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp_runtime/optim/methods.h"
#include "ddp_runtime/optim/offload/state_file.h"
#include "ddp_runtime/optim/parallel_ranges.h"
#include "ddp_runtime/optim/step_part.h"
#include "ddp_runtime/optim/update_rules.h"

namespace ddp::optim {

// Fewer elements are not worth another thread; libtorch's operators use the
// same number.
inline constexpr std::int64_t kGrain = 32768;

template <class Method>
class OnePass {
 public:
  using Part = StepPart<Method>;

  // `file`: where state may be; null if none is.
  OnePass(const UpdateRules& rules, StateFile* file) : rules_(rules), file_(file) {}

  // The parts have arrays.
  void update(const std::vector<Part>& parts) const {
    if (file_ != nullptr) return update_in_windows(parts);
    std::vector<Piece> whole;
    for (const auto& part : parts) {
      whole.push_back({&part, 0, part.parameter.numel(), part.arrays});
    }
    update_pieces(whole);
  }

 private:
  // A slice of a part.
  struct Piece {
    const Part* part;
    std::int64_t first;
    std::int64_t count;
    typename Method::Arrays arrays;  // from the first element on; no bfloat16 gradient
  };

  // See Note [State in a file].
  void update_in_windows(const std::vector<Part>& parts) const {
    std::vector<std::vector<Piece>> pieces;
    std::vector<Window> windows;
    for (const auto& slices : cut_into_windows(parts, StateFile::kWindow)) {
      auto& of_window = pieces.emplace_back();
      for (const auto& [part, first, count] : slices) {
        of_window.push_back({part, first, count, from(part->arrays, first)});
      }
      auto& window = windows.emplace_back();
      for (auto& piece : of_window) {
        const auto stage = [&](float*& values) {
          if (!file_->holds(values)) return;
          window.push_back({&values, static_cast<std::size_t>(piece.count)});
        };
        Method::for_each_array_of_state(piece.arrays, stage);
        if (piece.part->has_master()) stage(piece.arrays.parameter);
      }
    }
    file_->run_windows(windows, [&](std::size_t i) { update_pieces(pieces[i]); });
  }

  static typename Method::Arrays from(const typename Method::Arrays& arrays, std::int64_t offset) {
    const auto* const gradient = arrays.gradient == nullptr ? nullptr : arrays.gradient + offset;
    return optim::from(arrays, offset, gradient);
  }

  void update_pieces(const std::vector<Piece>& pieces) const {
    std::vector<std::int64_t> ends;
    std::int64_t end = 0;
    for (const auto& piece : pieces) ends.push_back(end += piece.count);
    for_ranges(end, kGrain, [&](std::int64_t first, std::int64_t last) {
      update_elements(pieces, ends, first, last);
    });
  }

  // Updates the elements [first, last) of all pieces, which are numbered one
  // piece after the other.
  void update_elements(const std::vector<Piece>& pieces, const std::vector<std::int64_t>& ends,
                       std::int64_t first, std::int64_t last) const {
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends, first) - ends.begin());
    while (first < last) {
      const auto& piece = pieces[index];
      const std::int64_t offset = first - (ends[index] - piece.count);
      const std::int64_t count = std::min(last, ends[index]) - first;
      update_range(piece, offset, count);
      first += count;
      ++index;
    }
  }

  void update_range(const Piece& piece, std::int64_t offset, std::int64_t count) const {
    if (piece.part->has_master()) return update_range_of_master(piece, offset, count);
    Method::run(rules_, piece.part->update, from(piece.arrays, offset),
                static_cast<std::size_t>(count));
  }

  // Block by block, so that the gradient in float32 exists only in the cache.
  void update_range_of_master(const Piece& piece, std::int64_t offset, std::int64_t count) const {
    constexpr std::int64_t kBlock = 4096;
    std::array<float, kBlock> gradient;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const auto& part = *piece.part;
    const bool is_short = piece.arrays.gradient == nullptr;
    const auto* const gradients =
        is_short ? bf16_bits(part.parameter.grad()) + piece.first : nullptr;
    auto* const weights = bf16_bits(part.parameter) + piece.first;
    for (const std::int64_t end = offset + count; offset < end; offset += kBlock) {
      const auto n = static_cast<std::size_t>(std::min(kBlock, end - offset));
      if (is_short) rules_.widen(gradients + offset, gradient.data(), n);
      const auto arrays = optim::from(piece.arrays, offset,
                                      is_short ? gradient.data() : piece.arrays.gradient + offset);
      rules_.adopt(weights + offset, arrays.parameter, n);
      Method::run(rules_, part.update, arrays, n);
      rules_.round(arrays.parameter, weights + offset, n);
    }
  }

  static Bf16Bits* bf16_bits(const torch::Tensor& tensor) {
    return static_cast<Bf16Bits*>(tensor.data_ptr());
  }

  const UpdateRules& rules_;
  StateFile* file_;
};

}  // namespace ddp::optim
