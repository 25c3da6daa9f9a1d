// SPDX-License-Identifier: Apache-2.0
// Parts are boxes of a grid. If boxes are disjoint and together as large as the array, they cover
// it.

#include "hdf5_ckpt/core/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

namespace ddp::ckpt {
namespace {

std::uint64_t elements_of(const Shape& shape) {
  std::uint64_t elements = 1;
  for (const std::uint64_t n : shape) elements *= n;
  return elements;
}

// Returns the dimension with the most distinct starts, because a sweep along it has the fewest
// parts open at a time.
std::size_t widest_dimension(std::span<const ArrayInfo* const> parts, std::size_t dimensions) {
  std::size_t widest = 0;
  std::size_t most = 0;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::set<std::uint64_t> starts;
    for (const ArrayInfo* part : parts) starts.insert(part->part->start[d]);
    if (starts.size() <= most) continue;
    most = starts.size();
    widest = d;
  }
  return widest;
}

bool overlap(const ArrayInfo& a, const ArrayInfo& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d)
    if (a.part->start[d] >= b.part->start[d] + b.shape[d] ||
        b.part->start[d] >= a.part->start[d] + a.shape[d])
      return false;
  return true;
}

// Sweeps over nonempty parts along one dimension and compares each with the parts that are open
// there.
std::string overlap_problem(std::vector<const ArrayInfo*> parts, std::uint64_t& comparisons) {
  if (parts.size() < 2) return "";
  const std::size_t dimensions = parts.front()->shape.size();
  if (dimensions == 0) return "is a scalar in several parts";
  const std::size_t d = widest_dimension(parts, dimensions);
  const auto start = [d](const ArrayInfo* part) { return part->part->start[d]; };
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const ArrayInfo* a, const ArrayInfo* b) { return start(a) < start(b); });
  std::vector<const ArrayInfo*> open;
  for (const ArrayInfo* part : parts) {
    std::erase_if(open, [&](const ArrayInfo* other) {
      return start(other) + other->shape[d] <= start(part);
    });
    comparisons += open.size();
    if (comparisons > kMaxComparisons) return "has more parts than can be compared";
    for (const ArrayInfo* other : open)
      if (overlap(*other, *part))
        return fmt::format("has parts that overlap: {} from {} in '{}' and {} from {} in '{}'",
                           shape_text(other->shape), shape_text(other->part->start), other->file,
                           shape_text(part->shape), shape_text(part->part->start), part->file);
    open.push_back(part);
  }
  return "";
}

}  // namespace

std::string part_problem(DType dtype, const Shape& shape, const PartOf& part) {
  const auto& [global, start] = part;
  if (start.size() != shape.size() || global.size() != shape.size())
    return fmt::format("has {} dimensions, starts at {} and belongs to {}", shape.size(),
                       shape_text(start), shape_text(global));
  if (!byte_count(dtype, global)) return "belongs to an array of an impossible size";
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (start[d] > global[d] || shape[d] > global[d] - start[d])
      return fmt::format("has {} from {}, outside of {}", shape_text(shape), shape_text(start),
                         shape_text(global));
  return "";
}

std::string cover_problem(std::span<const ArrayInfo> parts, std::uint64_t& comparisons) {
  const ArrayInfo& first = parts.front();
  const std::uint64_t all = elements_of(first.global_shape());
  std::uint64_t covered = 0;
  std::set<std::string_view> files;
  std::vector<const ArrayInfo*> solid;
  for (const ArrayInfo& part : parts) {
    if (part.dtype != first.dtype || part.global_shape() != first.global_shape())
      return fmt::format("is {} {} in '{}' and {} {} in '{}'", dtype_name(first.dtype),
                         shape_text(first.global_shape()), first.file, dtype_name(part.dtype),
                         shape_text(part.global_shape()), part.file);
    if (!files.insert(part.file).second) return fmt::format("has two parts in '{}'", part.file);
    const std::uint64_t elements = elements_of(part.shape);
    if (elements == 0) continue;
    solid.push_back(&part);
    // Compare before adding, so that the sum never exceeds the array by more than 1 and cannot
    // overflow.
    covered = elements > all - covered ? all + 1 : covered + elements;
    if (covered > all) break;
  }
  if (std::string problem = overlap_problem(std::move(solid), comparisons); !problem.empty())
    return problem;
  if (covered != all)
    return fmt::format("has a hole: its parts have {} of its {} elements", covered, all);
  return "";
}

Box box_of(const Shape& shape, const std::optional<PartOf>& part) {
  return {part ? part->start : Shape(shape.size(), 0), shape};
}

void for_each_piece(DType dtype, const Shape& shape, std::uint64_t piece_bytes,
                    const std::function<void(const Box& box)>& piece) {
  if (elements_of(shape) == 0) return;
  // A piece spans all of the dimensions after d, several steps of d, and one step of each dimension
  // before d.
  std::size_t d = shape.size();
  std::uint64_t step_bytes = itemsize(dtype);
  while (d > 0 && step_bytes * shape[d - 1] <= piece_bytes) step_bytes *= shape[--d];
  Box box{Shape(shape.size(), 0), shape};
  if (d == 0) return piece(box);
  --d;
  const std::uint64_t steps = std::max<std::uint64_t>(1, piece_bytes / step_bytes);
  std::fill_n(box.extent.begin(), d, 1);
  for (;;) {
    box.extent[d] = std::min(steps, shape[d] - box.start[d]);
    piece(box);
    box.start[d] += box.extent[d];
    std::size_t carry = d;
    for (; box.start[carry] == shape[carry]; ++box.start[--carry]) {
      box.start[carry] = 0;
      if (carry == 0) return;
    }
  }
}

Overlap::Overlap(const Box& from, const Box& to, std::uint64_t itemsize) {
  const std::size_t dimensions = from.extent.size();
  std::uint64_t from_step = itemsize;
  std::uint64_t to_step = itemsize;
  bool contiguous = true;  // all inner dimensions are shared completely
  first_.length = itemsize;
  runs_ = 1;
  for (std::size_t d = dimensions; d-- > 0;) {
    const std::uint64_t low = std::max(from.start[d], to.start[d]);
    const std::uint64_t high = std::min(from.start[d] + from.extent[d], to.start[d] + to.extent[d]);
    const std::uint64_t count = high > low ? high - low : 0;
    if (count == 0) {
      runs_ = 0;
      return;
    }
    first_.from += (low - from.start[d]) * from_step;
    first_.to += (low - to.start[d]) * to_step;
    if (contiguous) {
      first_.length *= count;
      contiguous = count == from.extent[d] && count == to.extent[d];
    } else {
      outer_.insert(outer_.begin(), {count, from_step, to_step});
      runs_ *= count;
    }
    from_step *= from.extent[d];
    to_step *= to.extent[d];
  }
}

Overlap::Run Overlap::run(std::uint64_t index) const noexcept {
  Run run = first_;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    const std::uint64_t step = index % outer_[d].count;
    index /= outer_[d].count;
    run.from += step * outer_[d].from_step;
    run.to += step * outer_[d].to_step;
  }
  return run;
}

std::uint64_t Overlap::first_run_beyond(std::uint64_t at) const noexcept {
  std::uint64_t low = 0;
  std::uint64_t high = runs_;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const Run candidate = run(middle);
    if (candidate.from + candidate.length > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

bool Overlap::touches(std::uint64_t begin, std::uint64_t end) const noexcept {
  const std::uint64_t first = first_run_beyond(begin);
  return first < runs_ && run(first).from < end;
}

}  // namespace ddp::ckpt
