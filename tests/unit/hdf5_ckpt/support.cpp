// SPDX-License-Identifier: Apache-2.0
// Contents depend only on names and seeds, so that a test can recreate the arrays that it has
// saved.

#include "tests/unit/hdf5_ckpt/support.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

namespace ddp::ckpt::test {

namespace fs = std::filesystem;

namespace {

fs::path parent_on(On on) {
  const fs::path memory = "/dev/shm";
  return on == On::memory && fs::is_directory(memory) ? memory : fs::temp_directory_path();
}

}  // namespace

TempDirectory::TempDirectory(On on) : TemporaryDirectory(parent_on(on)) {}

void ArraySet::add(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed) {
  std::mt19937_64 random(seed * 1000003 + std::hash<std::string>{}(name));
  std::vector<std::byte> bytes(byte_count(dtype, shape).value());
  for (std::byte& b : bytes)
    b = dtype == DType::boolean ? std::byte{1} : static_cast<std::byte>(1 + random() % 255);
  add_bytes(name, dtype, shape, std::move(bytes));
}

void ArraySet::add_bytes(const std::string& name, DType dtype, const Shape& shape,
                         std::vector<std::byte> bytes) {
  arrays_.push_back({name, {dtype, shape, std::move(bytes)}});
}

std::vector<ArrayView> ArraySet::views() const {
  std::vector<ArrayView> views;
  for (const auto& [name, array] : arrays_)
    views.push_back({name, array.dtype, array.shape, array.bytes});
  return views;
}

ArraySet ArraySet::zeros() const {
  ArraySet result = *this;
  for (auto& [name, array] : result.arrays_)
    std::fill(array.bytes.begin(), array.bytes.end(), std::byte{0});
  return result;
}

std::vector<MutableArrayView> ArraySet::targets() {
  std::vector<MutableArrayView> targets;
  for (auto& [name, array] : arrays_)
    targets.push_back({name, array.dtype, array.shape, array.bytes});
  return targets;
}

ArraySet small_model(std::uint64_t step) {
  ArraySet set;
  set.add("model/conv1.weight", DType::float32, {40, 1000}, step);  // aligned, several blocks
  set.add("model/fc.weight", DType::bfloat16, {33, 1001}, step);    // aligned, odd tail
  set.add("model/conv1.bias", DType::float32, {40}, step);          // small
  set.add("model/empty", DType::float32, {0, 7}, step);
  set.add("optim/step", DType::int64, {}, step);
  set.add("rng/rank-0/cpu", DType::uint8, {5056}, step);
  return set;
}

bool holds(const Checkpoint& checkpoint, const ArraySet& expected) {
  ArraySet loaded = expected.zeros();
  checkpoint.read_into(loaded.targets());
  return loaded == expected;
}

OwnerTag test_owner() {
  return OwnerTag::of_this_process("test", 0);
}

CheckpointInfo test_info() {
  return {
      .epoch = 3, .world_size = 1, .run_id = "run-a", .state = {{"lr", 0.1}, {"best", nullptr}}};
}

SaveOptions small_options() {
  SaveOptions options;
  options.write.threads = 1;
  options.write.block_bytes = 32768;
  return options;
}

Saved save_step(const fs::path& root, std::uint64_t step, const SaveOptions& options,
                FileOps& ops) {
  return CheckpointDirectory(root, options, ops)
      .save(step, test_owner(), small_model(step).views(), test_info());
}

Saved save_arrays(const fs::path& root, std::uint64_t step, const ArraySet& arrays,
                  const CheckpointInfo& info) {
  SaveOptions options = small_options();
  options.if_exists = IfExists::replace;
  return CheckpointDirectory(root, options).save(step, test_owner(), arrays.views(), info);
}

Steps steps_in(const fs::path& root) {
  Steps steps;
  for (const Candidate& candidate : CheckpointDirectory(root).candidates())
    steps.push_back(candidate.step);
  return steps;
}

void damage(const fs::path& step, const std::string& array) {
  const Checkpoint checkpoint = Checkpoint::open(step);
  const ArrayInfo& info = checkpoint.find(array)->parts.front();
  flip_bit(step / info.file, info.offset + info.length - 1);
}

void flip_bit(const fs::path& file, std::size_t byte) {
  std::vector<std::byte> bytes = file_bytes(file);
  bytes.at(byte) ^= std::byte{1};
  put_file_bytes(file, bytes);
}

nlohmann::json json_of(std::string_view text) {
  return nlohmann::json::parse(text.data(), text.data() + text.size());
}

std::vector<std::byte> file_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void put_file_bytes(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Names names_in(const fs::path& directory) {
  Names names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ddp::ckpt::test
