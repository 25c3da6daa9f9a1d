// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/initialize.h"

#include <fmt/format.h>

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/train/state/array_views.h"
#include "hdf5_ckpt/convert/array_source.h"

namespace ddp::train {
namespace {

using ckpt::ArraySource;

std::vector<NamedTensor> whole_state(const torch::nn::Module& module) {
  auto state = named_parameters(module);
  for (auto& buffer : named_buffers(module)) state.push_back(std::move(buffer));
  return state;
}

// The names of shared tensors that whole_state() leaves out, by the name that it lists.
std::unordered_map<std::string, std::vector<std::string>> aliases_of(
    const torch::nn::Module& module) {
  std::unordered_map<const c10::TensorImpl*, std::string> first;
  for (const auto& listed : whole_state(module)) {
    first.emplace(listed.tensor.unsafeGetTensorImpl(), listed.name);
  }
  std::unordered_map<std::string, std::vector<std::string>> aliases;
  const auto add = [&](const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
    for (const auto& item : tensors) {
      const auto found = first.find(item.value().unsafeGetTensorImpl());
      if (found == first.end() || found->second == item.key()) continue;
      aliases[found->second].push_back(item.key());
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return aliases;
}

std::vector<ModelTensor> model_tensors_of(const torch::nn::Module& module,
                                          const std::vector<NamedTensor>& tensors) {
  auto aliases = aliases_of(module);
  std::vector<ModelTensor> model;
  for (const auto& [name, tensor] : tensors) {
    const auto type = stored_type(tensor.scalar_type());
    if (!type) {
      throw UsageError(fmt::format("'{}' is of type {}, which files of weights cannot hold", name,
                                   c10::toString(tensor.scalar_type())));
    }
    model.push_back(
        {name, std::move(aliases[name]), *type, {tensor.sizes().begin(), tensor.sizes().end()}});
  }
  return model;
}

// Host memory for an array of a file, as the file has it.
torch::Tensor allocate(const ckpt::ArrayHeader& array) {
  const std::vector<std::int64_t> sizes(array.shape.begin(), array.shape.end());
  return torch::empty(sizes, torch::TensorOptions(torch::kCPU).dtype(scalar_type(array.dtype)));
}

// Reads all arrays of the plan: for each row the values of its sources, in the shape of the model.
std::vector<std::vector<torch::Tensor>> read_all(const ArraySource& source, const InitPlan& plan) {
  std::vector<std::vector<torch::Tensor>> values(plan.rows.size());
  std::vector<ArraySource::Read> reads;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    if (plan.rows[i].outcome != InitOutcome::taken) continue;
    for (const auto& from : plan.rows[i].sources) {
      const auto staged = allocate(source.arrays()[from.array]);
      reads.push_back({from.array, {static_cast<std::byte*>(staged.data_ptr()), staged.nbytes()}});
      values[i].push_back(from.transposed ? staged.t() : staged);
    }
  }
  source.read(reads);
  return values;
}

// A tied tensor has the same values under all of its names; otherwise it was not tied, or the map
// gives two tensors the same name.
void require_equal(const InitRow& row, const std::vector<torch::Tensor>& values,
                   const std::vector<ckpt::ArrayHeader>& arrays) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    const bool same_type = values[i].scalar_type() == values[0].scalar_type();
    if (same_type && torch::equal(values[i], values[0])) continue;
    throw UsageError(fmt::format(
        "'{}' and '{}' of the file are both '{}' in the model, but their values differ; leave one "
        "of them out with a line 'NAME -> -' in a map (--init-map)",
        arrays[row.sources[0].array].name, arrays[row.sources[i].array].name, row.name));
  }
}

// Plans the initialization. A tensor that the file has and that cannot be read is named if the plan
// fails, because it may be the one that is missing.
InitPlan plan_for(const ArraySource& file, const std::vector<ModelTensor>& model,
                  const InitOptions& options, const std::string& source) {
  try {
    return plan_initialization(model, file.arrays(), options, source);
  } catch (const UsageError& error) {
    if (file.unreadable().empty()) throw;
    const auto& first = file.unreadable().front();
    throw UsageError(fmt::format("{}; the file has {} that cannot be read, one of them '{}': {}",
                                 error.what(), file.unreadable().size(), first.name, first.reason));
  }
}

// A short type may not hold large values: they would become infinite.
void require_range(const InitRow& row, const torch::Tensor& values, torch::ScalarType type) {
  if (!values.is_floating_point() || values.scalar_type() == type) return;
  const auto lost = torch::isfinite(values).logical_and(torch::isinf(values.to(type)));
  if (!lost.any().item<bool>()) return;
  throw UsageError(fmt::format("'{}' has values in the file that are too large for {}", row.name,
                               c10::toString(type)));
}

}  // namespace

InitReport fill_from(const std::filesystem::path& source, const InitOptions& options,
                     const torch::nn::Module& module, const std::vector<NamedTensor>& tensors) {
  const torch::NoGradGuard no_grad;
  const auto file = ArraySource::open(source, options.prefix);
  InitReport report{file.path(), options.map.origin(), file.arrays(), {}, file.leaves_average()};
  report.plan = plan_for(file, model_tensors_of(module, tensors), options, source.string());
  const auto values = read_all(file, report.plan);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (values[i].empty()) continue;
    require_equal(report.plan.rows[i], values[i], report.arrays);
    require_range(report.plan.rows[i], values[i].front(), tensors[i].tensor.scalar_type());
  }
  // Only now, when nothing can be wrong any more, does the model change.
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!values[i].empty()) tensors[i].tensor.detach().copy_(values[i].front());
  }
  return report;
}

InitReport initialize_from(comm::Group& group, torch::nn::Module& module,
                           const std::filesystem::path& source, const InitOptions& options) {
  const auto tensors = whole_state(module);
  require_same_model(group, tensors);
  InitReport report;
  if (group.rank() == 0) report = fill_from(source, options, module, tensors);
  broadcast_from_leader(group, tensors);
  return report;
}

std::map<std::string, std::string> settings_of(const InitialWeights& weights) {
  std::map<std::string, std::string> settings = {{"init_from", weights.source.string()}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) settings[name] = value;
  };
  const auto list = [](const std::vector<ckpt::NamePattern>& patterns) {
    std::string text;
    for (const auto& pattern : patterns) text += (text.empty() ? "" : ",") + pattern.text();
    return text;
  };
  const auto& options = weights.options;
  add("init_prefix", options.prefix.value_or(""));
  add("init_map", options.map.origin());
  add("init_only", list(options.only));
  add("init_skip", list(options.skip));
  if (options.strict == InitStrictness::matching) settings["init_strict"] = "matching";
  return settings;
}

}  // namespace ddp::train
