// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/init_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/errors.h"

namespace ddp::train {
namespace {

using ckpt::ArrayHeader;
using ckpt::DType;
using ckpt::shape_text;

constexpr std::size_t kNamedExamples = 3;

bool selected(const InitOptions& options, std::string_view name) {
  return options.only.empty() || any_matches(options.only, name);
}

ckpt::Shape file_shape(const ArrayHeader& array, bool transposed) {
  auto shape = array.shape;
  if (transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
  return shape;
}

bool is_floating(DType type) noexcept {
  return type == DType::float64 || type == DType::float32 || type == DType::float16 ||
         type == DType::bfloat16;
}

// Assigns the file's arrays to the model's tensors, and notes which patterns and rules matched.
class Planner {
 public:
  Planner(std::span<const ModelTensor> model, std::span<const ArrayHeader> file,
          const InitOptions& options)
      : file_(file), options_(options) {
    for (const auto& tensor : model) {
      add_name(tensor.name, plan_.rows.size());
      for (const auto& alias : tensor.aliases) add_name(alias, plan_.rows.size());
      plan_.rows.push_back({tensor.name, tensor.shape, tensor.dtype, {}, {}});
    }
  }

  void assign() {
    for (std::size_t i = 0; i < file_.size(); ++i) assign(i);
    for (auto& row : plan_.rows) {
      row.outcome = outcome_of(row);
      if (row.outcome == InitOutcome::taken) ++plan_.taken;
    }
  }

  // Throws UsageError if an option names nothing, which is a mistake in it.
  void require_effect() const {
    require_matches("--init-only", options_.only);
    require_matches("--init-skip", options_.skip);
    if (!options_.map.has_rules() || mapped_ > 0 || file_.empty()) return;
    throw UsageError(fmt::format(
        "the map '{}' matches none of the {} names in the file, of which one is '{}'; use the map "
        "for the library that wrote the file",
        options_.map.origin(), file_.size(), file_.front().name));
  }

  InitPlan take() { return std::move(plan_); }

 private:
  void add_name(const std::string& name, std::size_t row) {
    rows_.emplace(name, row);
    names_.insert(name);
  }

  void assign(std::size_t array) {
    const auto mapped = options_.map.map(file_[array].name);
    if (mapped.by_rule) ++mapped_;
    if (!mapped.name) return;
    names_.insert(*mapped.name);
    const auto found = rows_.find(*mapped.name);
    if (found != rows_.end()) {
      plan_.rows[found->second].sources.push_back({array, mapped.transposed});
    } else if (selected(options_, *mapped.name) && !any_matches(options_.skip, *mapped.name)) {
      plan_.unknown.push_back(array);
    }
  }

  InitOutcome outcome_of(const InitRow& row) const {
    if (any_matches(options_.skip, row.name)) return InitOutcome::skipped;
    if (!selected(options_, row.name)) return InitOutcome::unselected;
    if (row.sources.empty()) return InitOutcome::not_in_file;
    for (const auto& source : row.sources) {
      const auto& array = file_[source.array];
      const bool matrix = array.shape.size() == 2;
      if ((source.transposed && !matrix) || file_shape(array, source.transposed) != row.shape) {
        return InitOutcome::other_shape;
      }
      if (!converts(array.dtype, row.dtype)) return InitOutcome::other_type;
    }
    return InitOutcome::taken;
  }

  void require_matches(const char* option, const std::vector<ckpt::NamePattern>& patterns) const {
    for (const auto& pattern : patterns) {
      const bool found = std::any_of(names_.begin(), names_.end(),
                                     [&](const auto& name) { return pattern.matches(name); });
      if (found) continue;
      throw UsageError(fmt::format(
          "{} '{}' matches no tensor of the model or the file; one of the model's is '{}'", option,
          pattern.text(), plan_.rows.empty() ? "" : plan_.rows.front().name));
    }
  }

  std::span<const ArrayHeader> file_;
  const InitOptions& options_;
  InitPlan plan_;
  std::unordered_map<std::string, std::size_t> rows_;  // by name and alias
  std::set<std::string> names_;                        // of the model, and of the file when mapped
  std::size_t mapped_ = 0;                             // arrays that a rule of the map matched
};

// "3 tensors are not in the file (a, b, c)".
std::string counted_and_named(std::size_t count, const std::string& one, const std::string& many,
                              std::vector<std::string> examples) {
  const bool more = examples.size() > kNamedExamples;
  if (more) examples.resize(kNamedExamples);
  return fmt::format("{} {} ({}{})", count, count == 1 ? one : many, fmt::join(examples, ", "),
                     more ? ", ..." : "");
}

std::string described(const InitRow& row, std::span<const ArrayHeader> file) {
  if (row.sources.empty()) return row.name;
  const auto& source = row.sources.front();
  const auto& array = file[source.array];
  if (row.outcome == InitOutcome::other_type) {
    return fmt::format("{} is {}, and {} in the file", row.name, ckpt::dtype_name(row.dtype),
                       ckpt::dtype_name(array.dtype));
  }
  return fmt::format("{} is {}, and {}{} in the file", row.name, shape_text(row.shape),
                     shape_text(array.shape), source.transposed ? " before it is transposed" : "");
}

std::vector<std::string> rows_with(const InitPlan& plan, InitOutcome outcome,
                                   std::span<const ArrayHeader> file) {
  std::vector<std::string> texts;
  for (const auto& row : plan.rows) {
    if (row.outcome != outcome) continue;
    if (outcome == InitOutcome::not_in_file && is_batch_counter(row.name)) continue;
    texts.push_back(described(row, file));
  }
  return texts;
}

// The differences between model and file that the options do not explain; empty if there are none.
std::string differences(const InitPlan& plan, std::span<const ArrayHeader> file) {
  std::vector<std::string> parts;
  const auto add = [&](const std::vector<std::string>& found, const char* one, const char* many) {
    if (!found.empty()) parts.push_back(counted_and_named(found.size(), one, many, found));
  };
  add(rows_with(plan, InitOutcome::other_shape, file), "tensor has another shape",
      "tensors have other shapes");
  add(rows_with(plan, InitOutcome::other_type, file), "tensor has another type",
      "tensors have other types");
  add(rows_with(plan, InitOutcome::not_in_file, file), "tensor is not in the file",
      "tensors are not in the file");
  std::vector<std::string> unknown;
  for (const auto array : plan.unknown) unknown.push_back(file[array].name);
  add(unknown, "array of the file is not in the model", "arrays of the file are not in the model");
  return fmt::format("{}", fmt::join(parts, "; "));
}

// If the file's names are those of the model with something in front, the option that removes it.
std::string advice(const InitPlan& plan, std::span<const ArrayHeader> file) {
  for (const auto& row : plan.rows) {
    for (const auto& array : file) {
      if (array.name.size() <= row.name.size() || !array.name.ends_with(row.name)) continue;
      const auto prefix = array.name.substr(0, array.name.size() - row.name.size());
      if (prefix.ends_with('.') || prefix.ends_with('/')) {
        return fmt::format("use --init-prefix {}, which removes it from the names", prefix);
      }
    }
  }
  return "use --init-map with a map of its names";
}

}  // namespace

InitStrictness parse_init_strictness(const std::string& name) {
  if (name == "all") return InitStrictness::all;
  if (name == "matching") return InitStrictness::matching;
  throw UsageError(
      fmt::format("unknown strictness '{}' (--init-strict); use all or matching", name));
}

bool converts(DType from, DType to) noexcept {
  return from == to || (is_floating(from) && is_floating(to));
}

bool is_batch_counter(std::string_view name) noexcept {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

InitPlan plan_initialization(std::span<const ModelTensor> model, std::span<const ArrayHeader> file,
                             const InitOptions& options, const std::string& source) {
  Planner planner(model, file, options);
  planner.assign();
  planner.require_effect();
  auto plan = planner.take();
  const auto found = differences(plan, file);
  if (options.strict == InitStrictness::all && !found.empty() && plan.taken > 0) {
    throw UsageError(
        fmt::format("'{}' does not fit the model: {}; leave them out by --init-skip or a map, or "
                    "take what fits "
                    "with --init-strict matching",
                    source, found));
  }
  if (plan.taken == 0) {
    throw UsageError(fmt::format(
        "no tensor of the model starts from '{}'{}: {}", source, found.empty() ? "" : ": " + found,
        found.empty() ? "the options leave out all of them" : advice(plan, file)));
  }
  return plan;
}

}  // namespace ddp::train
