// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/init_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::train {
namespace {

using ckpt::shape_text;

std::string taken_from(const InitRow& row, const std::vector<ckpt::ArrayHeader>& arrays) {
  std::string text;
  for (const auto& source : row.sources) {
    const auto& array = arrays[source.array];
    text += fmt::format(
        "{}{}{}{}", text.empty() ? "" : " = ", array.name, source.transposed ? " transposed" : "",
        array.dtype == row.dtype ? std::string()
                                 : fmt::format(" ({} to {})", ckpt::dtype_name(array.dtype),
                                               ckpt::dtype_name(row.dtype)));
  }
  return text;
}

std::string origin_of(const InitRow& row, const std::vector<ckpt::ArrayHeader>& arrays) {
  switch (row.outcome) {
    case InitOutcome::taken:
      return taken_from(row, arrays);
    case InitOutcome::skipped:
      return "initial value: skipped";
    case InitOutcome::unselected:
      return "initial value: not selected";
    case InitOutcome::not_in_file:
      return "initial value: not in the file";
    case InitOutcome::other_shape:
      return fmt::format("initial value: {} in the file",
                         shape_text(arrays[row.sources.front().array].shape));
    case InitOutcome::other_type:
      return fmt::format("initial value: {} in the file",
                         ckpt::dtype_name(arrays[row.sources.front().array].dtype));
  }
  return {};
}

}  // namespace

std::string init_table(const InitReport& report) {
  const auto& rows = report.plan.rows;
  auto text = fmt::format("{} of {} tensors start from {}{}\n", report.plan.taken, rows.size(),
                          report.source.string(),
                          report.map.empty() ? "" : fmt::format(" (map {})", report.map));
  std::size_t names = 0;
  std::size_t shapes = 0;
  for (const auto& row : rows) {
    names = std::max(names, row.name.size());
    shapes = std::max(shapes, shape_text(row.shape).size());
  }
  for (const auto& row : rows) {
    text += fmt::format("  {:<{}}  {:<{}}  {}\n", row.name, names, shape_text(row.shape), shapes,
                        origin_of(row, report.arrays));
  }
  for (const auto index : report.plan.unknown) {
    const auto& array = report.arrays[index];
    text += fmt::format("  not used: {} {}\n", array.name, shape_text(array.shape));
  }
  if (report.leaves_average) {
    text +=
        "  the run evaluated the averages of its weights (--ema), not these; "
        "--init-prefix average/ takes them\n";
  }
  return text;
}

}  // namespace ddp::train
