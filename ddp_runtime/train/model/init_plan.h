// SPDX-License-Identifier: Apache-2.0
// Which tensors of a model start from which arrays of a file. Pure: names, types and shapes in, a
// plan out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/name_map.h"
#include "hdf5_ckpt/convert/name_pattern.h"
#include "hdf5_ckpt/core/array.h"

namespace ddp::train {

// all: every tensor of the model must be in the file with its shape, and every array of the file in
// the model, except those that options or the map leave out. matching: the tensors that fit are
// taken, at least one, and the others keep their initial values.
enum class InitStrictness : std::uint8_t { all, matching };

// Throws UsageError listing the valid values.
InitStrictness parse_init_strictness(const std::string& name);

struct InitOptions {
  // Only arrays whose names start with this, which is removed from them. nullopt: "model/" for a
  // checkpoint, nothing for a file.
  std::optional<std::string> prefix = std::nullopt;
  ckpt::NameMap map = {};  // from the file's names to the model's
  // Of the model's names. A tensor is initialized if `only` is empty or one of its patterns
  // matches, and none of `skip` does.
  std::vector<ckpt::NamePattern> only = {};
  std::vector<ckpt::NamePattern> skip = {};
  InitStrictness strict = InitStrictness::all;
};

// A parameter or buffer of the model.
struct ModelTensor {
  std::string name;
  std::vector<std::string> aliases;  // further names of a shared (tied) tensor
  ckpt::DType dtype = ckpt::DType::float32;
  ckpt::Shape shape;
};

// The fate of a tensor of the model.
enum class InitOutcome : std::uint8_t {
  taken,
  skipped,     // by InitOptions::skip
  unselected,  // not in InitOptions::only
  not_in_file,
  other_shape,
  other_type,  // a type that cannot be converted, such as integers into float32
};

struct InitRow {
  std::string name;
  ckpt::Shape shape;
  ckpt::DType dtype = ckpt::DType::float32;
  InitOutcome outcome = InitOutcome::not_in_file;
  // Indices of the file's arrays for this tensor. Several if the file has a tied tensor under
  // several names: their values must be equal.
  struct Source {
    std::size_t array;
    bool transposed;
  };
  std::vector<Source> sources;
};

struct InitPlan {
  std::vector<InitRow> rows;         // one for each tensor of the model, in its order
  std::vector<std::size_t> unknown;  // arrays that have no place in the model
  std::int64_t taken = 0;
};

// Plans the initialization of `model` from the arrays of `file`. Throws UsageError with one
// sentence if it is not possible under options.strict, if a pattern or the map matches nothing, or
// if nothing would be taken. `source`: the name of the file for messages.
InitPlan plan_initialization(std::span<const ModelTensor> model,
                             std::span<const ckpt::ArrayHeader> file, const InitOptions& options,
                             const std::string& source);

// Whether values of type `from` are converted to `to`: floating-point types of 16, 32 and 64 bits
// among each other; any type to itself.
bool converts(ckpt::DType from, ckpt::DType to) noexcept;

// Whether the tensor is a counter of batch normalization, which files of old releases do not have.
// It then keeps its initial value, 0, as in PyTorch.
bool is_batch_counter(std::string_view name) noexcept;

}  // namespace ddp::train
