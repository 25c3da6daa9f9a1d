// SPDX-License-Identifier: Apache-2.0
// Shared helpers of the checkpoint tests: arrays with known contents, a temporary directory of
// checkpoints, and comparison of loaded data with saved data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/read/checkpoint.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::ckpt::test {

// Shorter to write, and to compile, than matchers of their elements.
using Steps = std::vector<std::uint64_t>;
using Names = std::vector<std::string>;

// On::memory is a tmpfs, if there is one, for tests that save thousands of times and do not depend
// on the disk.
enum class On { disk, memory };

// A new directory, removed with its contents.
class TempDirectory : public ddp::test::TemporaryDirectory {
 public:
  explicit TempDirectory(On on = On::disk);
  operator const std::filesystem::path&() const { return path(); }
  std::filesystem::path operator/(const std::string& name) const { return path() / name; }
};

// Named arrays with their own memory.
class ArraySet {
 public:
  // Adds an array whose bytes depend on `seed`, the name and the position, and are never zero, so
  // that a byte that was not written differs.
  void add(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed = 1);
  void add_bytes(const std::string& name, DType dtype, const Shape& shape,
                 std::vector<std::byte> bytes);

  std::vector<ArrayView> views() const;
  // Returns arrays with the same names and shapes, filled with zeros.
  ArraySet zeros() const;
  std::vector<MutableArrayView> targets();

  // Compares names, dtypes, shapes and bytes.
  bool operator==(const ArraySet& other) const = default;
  std::size_t size() const { return arrays_.size(); }

 private:
  struct Entry {
    std::string name;
    OwnedArray array;
    bool operator==(const Entry& other) const {
      return name == other.name && array.dtype == other.array.dtype &&
             array.shape == other.array.shape && array.bytes == other.array.bytes;
    }
  };
  std::vector<Entry> arrays_;
};

// Returns a small model with aligned and small arrays, an odd tail, a scalar and an empty array.
// The bytes depend on `step`.
ArraySet small_model(std::uint64_t step);

// True if the checkpoint has exactly the arrays of `expected`, with equal bytes.
bool holds(const Checkpoint& checkpoint, const ArraySet& expected);

OwnerTag test_owner();
CheckpointInfo test_info();

// Returns options with one thread and small blocks, to exercise every path with little data and in
// a fixed order.
SaveOptions small_options();

// Saves small_model(step) as that step.
Saved save_step(const std::filesystem::path& root, std::uint64_t step,
                const SaveOptions& options = small_options(), FileOps& ops = system_file_ops());
// Saves these arrays, in place of an earlier checkpoint of that step.
Saved save_arrays(const std::filesystem::path& root, std::uint64_t step, const ArraySet& arrays,
                  const CheckpointInfo& info = test_info());
// Returns the steps of the checkpoints in a directory, newest first.
Steps steps_in(const std::filesystem::path& root);
// Flips a bit of the last byte of one array of a checkpoint.
void damage(const std::filesystem::path& step, const std::string& array = "model/fc.weight");
// Flips a bit of a file.
void flip_bit(const std::filesystem::path& file, std::size_t byte);

// Like json::parse(), whose parser would be compiled once more for strings.
nlohmann::json json_of(std::string_view text);

std::vector<std::byte> file_bytes(const std::filesystem::path& path);
void put_file_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);
// Returns the names in a directory, sorted.
Names names_in(const std::filesystem::path& directory);

}  // namespace ddp::ckpt::test
